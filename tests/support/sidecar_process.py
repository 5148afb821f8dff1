"""`slipstream serve` as a process that a test can kill at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import yaml
from ports import free_port
from serving import until

from slipstream.store.database import Database


class SidecarProcess:
    """`slipstream serve` as a process, on one port and one store for all its lives.

    Attributes:
        log: a file that takes what it writes to stderr; None for the test's own.
        stderr: a descriptor in the place of both.
        python: which one, by its path.
        program: what it is to run.
        half: `serve`, or the half that it runs.
        command: a command, with its options, that starts it.
    """

    def __init__(self, folder: Path, production_url: str, explorer_url: str, **sections: Any) -> None:
        port = free_port()
        self.store = folder / "slipstream.db"
        self.config = folder / "sidecar.yaml"
        self.url = f"http://127.0.0.1:{port}"
        self.log: Path | None = None
        self.stderr: int | None = None
        self.python = sys.executable
        self.program = ("-m", "slipstream")
        self.half = "serve"
        self.command: tuple[str, ...] = ()
        self.lives = 0
        self._own_store = "store" not in sections
        self._process: asyncio.subprocess.Process | None = None
        self.config.write_text(
            yaml.safe_dump(
                {
                    "listen": f"127.0.0.1:{port}",
                    "production": {"base_url": f"{production_url}/v1"},
                    "explorer": {"base_url": explorer_url, "poll_interval": "200ms"},
                    "store": {"url": f"sqlite+aiosqlite:///{self.store}"},
                    "commit": {"interval": "150ms"},
                    "log": {"level": "error"},
                    **sections,
                }
            )
        )

    async def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it is ready."""
        if self._own_store and self.python == sys.executable and not self.store.exists():
            await self._make_store()
        with self.log.open("ab") if self.log else contextlib.nullcontext() as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self.command, self.python, *self.program, self.half, "--config", str(self.config)),
                stderr=log if self.stderr is None else self.stderr,
                process_group=0,
            )
        self.lives += 1
        if ready:
            await self.ready()

    async def _make_store(self) -> None:
        """Make the store as an earlier start would have: the tables of a new one take a process half of its start."""
        database = Database(f"sqlite+aiosqlite:///{self.store}")
        await database.open()
        await database.close()

    async def die(self, what: str) -> None:
        """`kill -9`, and live again.

        Args:
            what: `everything` at once, as where a container ends; the `parent`, whose workers end what is under way;
                or a child by its name, which the parent starts again.
        """
        if what == "everything":
            os.killpg(self.pid, signal.SIGKILL)
        elif what == "parent":
            self.send(signal.SIGKILL)
        else:
            os.kill(self.children()[what], signal.SIGKILL)
            self.lives += 1
            await self.ready()
            return
        await self.ended()
        await until(self.unlocked, 60)  # a child may outlive its parent for a moment, amid a write
        await self.start()

    async def killed_amid(self, work: int, done: Callable[[], int], kills: int, rng: random.Random) -> None:
        """`kill -9` it so many times while some work goes on, each time a share of the work later.

        Args:
            work: how much there is to do.
            done: returns how much of it is done.
        """
        for kill in range(1, kills + 1):
            await until(lambda goal=kill * work // (kills + 1): done() >= goal, 120)
            await asyncio.sleep(rng.uniform(0, 0.2))  # at any moment of whatever goes on
            await self.die(rng.choice(("everything", "parent", "training")))

    def unlocked(self) -> bool:
        """Whether no process of its last life has the store, where that is a file."""
        try:
            lock = os.open(f"{self.store}.lock", os.O_RDWR)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    async def ready(self) -> None:
        async with httpx.AsyncClient(base_url=self.url) as client:

            async def ready() -> bool:
                try:
                    return (await client.get("/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(ready, 60)

    async def end(self, how: signal.Signals) -> int:
        """Send a signal to the parent of its processes, and wait for its exit code."""
        self.send(how)
        return await self.ended()

    def send(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def children(self) -> dict[str, int]:
        """Its processes' ids by their names: `proxy-0`, `training`. Of a name that a program and its successor both
        have, the successor's."""
        return {name: pid for name, pid in _below(self.pid) if name is not None}

    def programs(self) -> list[int]:
        """The ids of the programs that have taken its place, the oldest first."""
        return [pid for name, pid in _below(self.pid) if name is None]


def _below(parent: int) -> list[tuple[str | None, int]]:
    """The names, for those that have one, and ids of the processes below one, in the order of their start."""
    found: list[tuple[str | None, int]] = []
    with contextlib.suppress(OSError):  # one that has just ended
        for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    continue  # it has ended, and its parent does not know yet
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name.startswith("slip-"):
                    found.append((name.removeprefix("slip-"), pid))
                else:
                    found += [(None, pid), *_below(pid)]
    return sorted(found, key=lambda one: one[1])


async def acknowledged(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Any:
    """Post until it is acknowledged, over every death of the sidecar in between.

    A worker of the proxy that outlives the control API says 502.
    """

    async def posted() -> Any:
        try:
            response = await client.post(path, json=body, headers=headers)
        except httpx.TransportError:
            return None
        if response.status_code == 502:
            return None
        assert response.status_code in (200, 202), response.text
        return response.json()

    return await until(posted, 120)
