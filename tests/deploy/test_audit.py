"""The audit of the pinned packages: a vulnerability fails it, and a database that is away is no clean bill."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from serving import serving

ROOT = Path(__file__).parents[2]


async def audited(folder: Path, pins: str, service: str) -> tuple[int | None, str]:
    """Exit code, and all that was said."""
    (folder / "constraints.txt").write_text(pins)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "deploy/audit.py"), str(folder / "constraints.txt"), "--service", service),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


def database(results: Any) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/querybatch")
    async def querybatch(request: Request) -> Any:
        known = {("requests", "2.0.0"): [{"id": "GHSA-x"}]}
        asked = [(each["package"]["name"], each["version"]) for each in (await request.json())["queries"]]
        return results or {"results": [{"vulns": known[pin]} if pin in known else {} for pin in asked]}

    return app


async def test_vulnerable_version_fails_and_is_named(tmp_path: Path) -> None:
    async with serving(database(None)) as url:
        code, said = await audited(tmp_path, "httpx==0.28.1\nrequests==2.0.0  # old\n", url)
    assert code == 1
    assert "requests 2.0.0: https://osv.dev/vulnerability/GHSA-x" in said
    assert "2 packages audited: 1 advisories" in said


async def test_nothing_found_is_said_with_the_number(tmp_path: Path) -> None:
    async with serving(database(None)) as url:
        assert await audited(tmp_path, "httpx==0.28.1\n", url) == (0, "1 packages audited: 0 advisories, 0 accepted\n")


@pytest.mark.parametrize("results", ["away", {"error": "x"}, {"results": []}], ids=["away", "error", "too-few"])
async def test_database_that_does_not_answer_is_a_warning_and_no_clean_bill(tmp_path: Path, results: Any) -> None:
    async with serving(database(results)) as url:
        code, said = await audited(tmp_path, "httpx==0.28.1\n", "http://127.0.0.1:9" if results == "away" else url)
    assert code == 0
    assert said.startswith("warning: 1 packages NOT audited")
    assert "audited:" not in said.partition("NOT audited")[2].partition(":")[0]
