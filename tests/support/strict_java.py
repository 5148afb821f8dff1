"""A Java client with AgentScope Java's data classes, run with Debian's JDK and Jackson."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).parent / "java" / "StrictClient.java"
_JARS = [Path(f"/usr/share/java/jackson-{part}.jar") for part in ("databind", "core", "annotations")]
_PACKAGES = "default-jdk-headless libjackson2-databind-java"


async def strict_java(url: str, *feedback: dict[str, Any]) -> list[dict[str, Any]]:
    """Post each feedback and a commit to Trinity's routes below `url`; returns the answers as the client read them."""
    await _install()
    bodies = [json.dumps(body) for body in feedback]
    path = ":".join(map(str, _JARS))
    status, output = await _run("java", "-cp", path, str(_PROGRAM), url, *bodies)
    assert status == 0, output
    return [json.loads(line) for line in output.splitlines()]


async def _install() -> None:
    if shutil.which("javac") and all(jar.exists() for jar in _JARS):
        return
    if shutil.which("apt-get") and os.geteuid() == 0:
        script = f"apt-get update -qq && apt-get install -qq -y --no-install-recommends {_PACKAGES}"
        status, output = await _run("sh", "-c", script)
    else:
        status, output = 1, "not root, or no apt-get"
    if status:
        pytest.fail(f"needs a JDK and Jackson; on Debian: apt-get install {_PACKAGES} ({output[-500:]})")


async def _run(*command: str) -> tuple[int | None, str]:
    """The exit status, and what was written to both outputs."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()
