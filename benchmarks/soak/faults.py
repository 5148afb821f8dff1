"""What is broken during the soak, and when. (What production and the agents break is in `asked` and `load`.)"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from soak.watched import processes

_EXPLORER_AWAY, _EXPLORER_HELD, _STORE_LOCKED = 5.0, 8.0, 3.0
"""Seconds that each lasts."""


class Faults:
    """Breaks things until it is cancelled.

    Args:
        start_explorer: starts the Explorer and returns its process's id.
        sidecar: the id of its parent process.
        store: a SQLite file.

    Attributes:
        done: how often each was done.
        killed: when the training side was killed, Unix seconds.
    """

    def __init__(self, start_explorer: Callable[[], int], sidecar: int, store: Path) -> None:
        self._start_explorer = start_explorer
        self._explorer = start_explorer()
        self._sidecar = sidecar
        self._store = store
        self.done: Counter[str] = Counter()
        self.killed: list[float] = []

    async def run(self, kills: list[float]) -> None:
        """Break things.

        Args:
            kills: seconds from now at which the training side is killed.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._each(120, self._kill_explorer, "Explorer killed and started again"))
            group.create_task(self._each(75, self._hold_explorer, "Explorer held by SIGSTOP"))
            group.create_task(self._each(45, self._lock_store, "store locked by another program"))
            for after in kills:
                group.create_task(self._kill_training(after))

    async def _each(self, seconds: float, fault: Callable[[], Awaitable[None]], name: str) -> None:
        while True:
            await asyncio.sleep(seconds)
            await fault()
            self.done[name] += 1

    async def _kill_explorer(self) -> None:
        os.kill(self._explorer, signal.SIGKILL)
        await asyncio.sleep(_EXPLORER_AWAY)
        self._explorer = self._start_explorer()

    async def _hold_explorer(self) -> None:
        held = self._explorer
        os.kill(held, signal.SIGSTOP)
        try:
            await asyncio.sleep(_EXPLORER_HELD)
        finally:
            if held == self._explorer:
                os.kill(held, signal.SIGCONT)

    async def _lock_store(self) -> None:
        await asyncio.to_thread(self._locked)

    def _locked(self) -> None:
        with sqlite3.connect(self._store, timeout=30) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(_STORE_LOCKED)
        other.close()

    async def _kill_training(self, after: float) -> None:
        await asyncio.sleep(after)
        if training := processes(self._sidecar).get("training"):  # else the last kill's is still to start
            os.kill(training, signal.SIGKILL)
            self.killed.append(time.time())
            self.done["training side killed by SIGKILL"] += 1
