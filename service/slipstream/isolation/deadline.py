"""Deadlines for work in a process that has to wait for a CPU.

Its processes let production go first (`nice`), so on a busy machine most of the time that passes may be others'. That
time is not counted: a deadline is for work that hangs, and not for a machine that has much to do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_MOST = 5
"""The time that is not counted, in parts of the deadline: work ends even where the figures are wrong."""
_FIRST_LOOK = 0.1
"""The process is first looked at after this part of the deadline: most work is done by then, and costs nothing."""
_LITTLE = 0.01
"""Seconds; for less the deadline is not moved."""


def waited(pid: int | str = "self") -> float:
    """Seconds that the threads of a process have waited for a CPU so far; 0 where the system does not say."""
    spent = 0
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):  # one that has just ended
                spent += int((thread / "schedstat").read_text().split()[1])
    return spent / 1e9


class _Watch:
    """Moves a deadline on for as long as a process waits for a CPU."""

    def __init__(self, limit: asyncio.Timeout, seconds: float, pid: int | str) -> None:
        self._limit, self._seconds, self._pid = limit, seconds, pid
        self._loop = asyncio.get_running_loop()
        self._begun, self._before = self._loop.time(), 0.0
        self._timer = self._loop.call_later(seconds * _FIRST_LOOK, self._begin)

    def cancel(self) -> None:
        self._timer.cancel()

    def _begin(self) -> None:
        self._before = waited(self._pid)
        self._look_before(self._begun + self._seconds)

    def _look(self) -> None:
        unused = min(waited(self._pid) - self._before, _MOST * self._seconds)
        when = self._begun + self._seconds + unused
        if when > self._loop.time() + _LITTLE:
            self._limit.reschedule(when)
            self._look_before(when)

    def _look_before(self, when: float) -> None:
        self._timer = self._loop.call_at(when - _LITTLE / 2, self._look)


@asynccontextmanager
async def deadline(seconds: float, pid: int | str = "self") -> AsyncIterator[asyncio.Timeout]:
    """As `asyncio.timeout`, without the time for which a process waited for a CPU after the first tenth.

    Args:
        pid: the process that does the work.

    Raises:
        TimeoutError: as of `asyncio.timeout`.
    """
    async with asyncio.timeout(seconds) as limit:
        watch = _Watch(limit, seconds, pid)
        try:
            yield limit
        finally:
            watch.cancel()
