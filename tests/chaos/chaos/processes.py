"""The processes that a schedule kills, stops and starts again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from chaos.log_pipe import LogPipe


class Process:
    """A program that can be killed, stopped and started again, on the same port and files for all its lives.

    Args:
        ready: says whether it serves.
        log: takes all that it writes: a file, or a pipe to one.

    Attributes:
        log: as it was given.
        held: faults that want it dead: while it is not 0, nobody starts it again.
        lives: how often it was started.
    """

    def __init__(
        self,
        command: Sequence[str],
        ready: Callable[[], Awaitable[bool]],
        log: Path | LogPipe,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.ready = ready
        self.held = 0
        self.lives = 0
        self._command = command
        self.log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it. It serves some time later, or has ended."""
        with contextlib.nullcontext(self.log.writer) if isinstance(self.log, LogPipe) else self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it is as good as at once
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment, process_group=0
            )
        self.lives += 1

    def signal(self, number: signal.Signals, *, all_of_it: bool = True) -> None:
        """Send a signal to it and its children, or to the parent of them alone."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if all_of_it else os.kill)(self._process.pid, number)

    async def kill(self, *, all_of_it: bool = True) -> None:
        self.signal(signal.SIGKILL, all_of_it=all_of_it)
        await self.ended()

    async def ended(self, patience: float = 100) -> int:
        """Wait until it has ended; returns its exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait, patience)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def children(self) -> dict[str, int]:
        """Its processes' ids by their names: `proxy-0`, `training`."""
        assert self._process is not None
        pid, found = self._process.pid, {}
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                with contextlib.suppress(OSError):  # one that has just ended
                    name = Path(f"/proc/{child}/comm").read_text().strip()
                    found[name.removeprefix("slip-")] = int(child)
        return found
