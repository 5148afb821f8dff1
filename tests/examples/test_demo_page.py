"""`make demo-page`: the page over what a demo left behind."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
import pytest
from ports import free_port
from serving import until

from slipstream.store.database import Database

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, str(ROOT / "examples" / "demo" / "look.py"))


@pytest.mark.slow
async def test_the_page_shows_the_store_of_the_last_demo(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/run/slipstream.db")
    await database.open()
    await database.close()
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--output", str(tmp_path), "--port", str(port), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        said = (await process.stdout.readline()).decode()
        assert f"http://127.0.0.1:{port}/" in said
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def up() -> bool:
                try:
                    return (await client.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(up, 60)
            assert "<title>Slipstream</title>" in (await client.get("/")).text
            assert (await client.get("/status")).json()["explorer"]["up"] is not True
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
async def test_without_a_demo_it_says_what_makes_one(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(*PROGRAM, "--output", str(tmp_path), stderr=asyncio.subprocess.PIPE)
    _, error = await process.communicate()
    assert process.returncode == 1
    assert "`make demo`" in error.decode()
