"""The processes of the soak: the sidecar on a core of its own; production, the Explorer and the agents beside it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from bench.machine import Cores
from bench.processes import Process, Unavailable, free_port

from soak.watched import said

_HERE = Path(__file__).parent
_PATHS = {"PYTHONPATH": str(_HERE.parent)}
_START = 60
"""Seconds that the sidecar may take to start, on a machine that is busy."""


@dataclass(frozen=True, slots=True)
class Second:
    """What the agents saw in a second: Unix time, seconds that answers took, streams open, chats without an answer
    yet, and how much of what came."""

    at: float
    p50: float | None
    p99: float | None
    streams: int
    outstanding: int
    counts: dict[str, int]


def settings(port: int, production: int, explorer: int, store: Path, retention: float) -> dict[str, Any]:
    """The sidecar's: what it keeps is bounded so that each bound is reached within minutes."""
    return {
        "listen": f"127.0.0.1:{port}",
        "production": {"base_url": f"http://127.0.0.1:{production}/v1"},
        "explorer": {"base_url": f"http://127.0.0.1:{explorer}"},
        "store": {"url": f"sqlite+aiosqlite:///{store}"},
        "capture": {
            "retention": f"{retention}s",
            "chains": 2000,
            "queue": 5000,
            "queue_bytes": "32MiB",
            "backlog_bytes": "64MiB",
            "max_body": "1MiB",
            "task_idle": "5s",
        },
        "selection": {"any": [{"explicit_mark": {"ttl": "30s"}}, {"sampling": {"rate": 0.002}}]},
        "runs": {"repeat_time": 4, "queue": 200, "timeout": "5s"},
        "rewards": {"calculators": ["agreement"], "grace": "2s"},
        "commit": {"interval": "5s"},
        "log": {"level": "warning"},
    }


@dataclass
class Rig:
    """Everything that runs.

    Attributes:
        processes: get whatever is started, to be ended by who made the list.
        seconds: what the agents saw, a second each.
    """

    folder: Path
    cores: Cores
    processes: list[Process]
    seed: int
    retention: float
    seconds: list[Second] = field(default_factory=list)

    def __post_init__(self) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
        self.port, self._production, self._explorer = free_port(), free_port(), free_port()
        self.store = self.folder / "store" / "slipstream.db"

    async def start(self) -> None:
        """Start production, the sidecar and the agents; the Explorer has `start_explorer`.

        Raises:
            Unavailable: one of them does not start.
        """
        self._model = self._module("production", str(self._production))
        self._model.listen(self._production)
        config = self.folder / "sidecar.yaml"
        config.write_text(
            yaml.safe_dump(settings(self.port, self._production, self._explorer, self.store, self.retention))
        )
        serve = [sys.executable, "-m", "slipstream", "serve", "--config", str(config)]
        self.sidecar = Process(serve, self.cores.proxy, self.folder / "sidecar.log", {})
        self.processes.append(self.sidecar)
        await self._serves()
        self._load = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "soak.load", str(self.port), str(self.seed)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_PATHS},
        )
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """End the agents, all at once and in the middle of what they do, and production."""
        self._reading.cancel()
        if self._load.returncode is None:
            self._load.kill()
        await self._load.wait()
        await asyncio.to_thread(self._model.end)

    def start_explorer(self) -> int:
        """Start the Explorer on its port; returns its process's id."""
        command = [sys.executable, str(_HERE.parent / "explorer_stub.py"), str(self._explorer)]
        process = Process(command, self.cores.others, self.folder / "explorer.log", {})
        self.processes.append(process)
        return process.pid

    def order(self, line: str) -> None:
        """Tell the agents what to do."""
        assert self._load.stdin is not None
        self._load.stdin.write(f"{line}\n".encode())

    async def streams_open(self, count: int) -> None:
        """Wait until so many are.

        Raises:
            Unavailable: they are not, after a while; the sidecar's log may say why.
        """
        for _ in range(300 + count // 10):
            if self.seconds and self.seconds[-1].streams >= count:
                return
            await asyncio.sleep(0.2)
        raise Unavailable(f"fewer than {count} streams are open: {self.sidecar.said()}")

    def seen(self, since: float, until: float | None = None) -> Counter[str]:
        """What came between two Unix times."""
        total: Counter[str] = Counter()
        for second in self.seconds:
            if since < second.at <= (until or time.time()):
                total.update(second.counts)
        return total

    async def _serves(self) -> None:
        deadline = time.monotonic() + _START
        while not await asyncio.to_thread(said, self.port):
            if time.monotonic() > deadline:
                raise Unavailable(f"the sidecar does not start: {self.sidecar.said()}")
            await asyncio.sleep(0.2)

    def _module(self, name: str, *arguments: str) -> Process:
        command = [sys.executable, "-m", f"soak.{name}", *arguments]
        process = Process(command, self.cores.others, self.folder / f"{name}.log", _PATHS)
        self.processes.append(process)
        return process

    async def _read(self) -> None:
        assert self._load.stdout is not None
        async for line in self._load.stdout:
            self.seconds.append(Second(**json.loads(line)))
