"""The newest Python that the distribution allows: it installs from wheels alone there, and its sidecar works."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import httpx
import pytest
from scripted import production_app
from serving import serving, until
from sidecar_process import SidecarProcess

ROOT = Path(__file__).parents[2]


async def run(*command: str | Path) -> str:
    """What a command prints."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


@pytest.mark.slow
async def test_the_sidecar_installs_and_works_on_python_3_13(tmp_path: Path) -> None:
    python = os.environ.get("PYTHON313") or shutil.which("python3.13")
    if python is None:
        pytest.fail("needs Python 3.13: put python3.13 on the PATH, or its path into PYTHON313")
    await run(python, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv" / "bin"
    only_ours = ("--only-binary=:all:", "--no-binary=slipstream-sidecar,antlr4-python3-runtime")
    await run(binaries / "pip", "install", "-q", *only_ours, "-c", "constraints.txt", ".[postgres]")
    async with serving(production_app()) as production:
        sidecar = SidecarProcess(tmp_path, production, "http://127.0.0.1:9")
        sidecar.python = str(binaries / "python")
        await sidecar.start()
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as client:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.json()["choices"][0]["message"]["content"] == "echo: hello"

            async def captured() -> bool:
                return (await client.get("/status")).json()["tasks"] == {"complete": 1}

            await until(captured)
        told = json.loads(await run(binaries / "slipstream", "status", "--url", sidecar.url, "--json"))
        assert told["tasks"] == {"complete": 1}
        assert await sidecar.end(signal.SIGTERM) == 0
