"""A scripted lane in a process of its own, which can be killed.

python lane_process.py PORT
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import uvicorn
from scripted_lane import ScriptedLane
from serving import until


class LaneProcess:
    """Starts and kills the lane at one port."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port = port
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        command = (sys.executable, __file__, str(self._port))
        self._process = await asyncio.create_subprocess_exec(*command, env=_environment())
        await until(self._answers, 60)

    async def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.get(f"{self.url}/health")).is_success
        return False


@asynccontextmanager
async def lane_process(port: int) -> AsyncIterator[LaneProcess]:
    """A lane that is killed at the end, whatever became of it."""
    lane = LaneProcess(port)
    try:
        yield lane
    finally:
        await lane.kill()


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


if __name__ == "__main__":
    scripted = ScriptedLane(answer="the lane says {n}")
    scripted.version, scripted.model = 12, "/kept/8"
    uvicorn.run(scripted.app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
