"""The newest Python that the distribution allows: it installs from wheels alone there, and its sidecar works."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
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


def python_3_13() -> str:
    """A Python 3.13 of this machine. One on the PATH may be pyenv's shim, which is there for versions that are not."""
    pyenv = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.13*/bin/python3.13"))
    for python in (os.environ.get("PYTHON313"), shutil.which("python3.13"), *map(str, pyenv)):
        if python and subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0:
            return python
    return pytest.fail("needs Python 3.13: put python3.13 on the PATH, or its path into PYTHON313")


@pytest.mark.slow
async def test_the_sidecar_installs_and_works_on_python_3_13(tmp_path: Path) -> None:
    python = python_3_13()
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
