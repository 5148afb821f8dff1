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


@asynccontextmanager
async def deadline(seconds: float, pid: int | str = "self") -> AsyncIterator[asyncio.Timeout]:
    """As `asyncio.timeout`, without the time for which a process waited for a CPU.

    Args:
        pid: the process that does the work.

    Raises:
        TimeoutError: as of `asyncio.timeout`.
    """
    loop = asyncio.get_running_loop()
    begun, before = loop.time(), waited(pid)
    timers: list[asyncio.TimerHandle] = []
    async with asyncio.timeout(seconds) as limit:

        def look() -> None:
            when = begun + seconds + min(waited(pid) - before, _MOST * seconds)
            if when > loop.time() + _LITTLE:
                limit.reschedule(when)
                timers[:] = [loop.call_at(when - _LITTLE / 2, look)]

        timers.append(loop.call_at(begun + seconds - _LITTLE / 2, look))
        try:
            yield limit
        finally:
            timers[0].cancel()
