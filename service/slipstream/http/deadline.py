"""A time limit that is moved with every piece of an answer and hardly ever reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_NEVER = float("inf")


class Deadline:
    """Calls `reached` once the time that was set last is over.

    Setting and clearing it are assignments. Its one timer of the event loop is left alone while it rings before the
    limit: it then looks how long there is still to wait. A timer for each limit would cost as much as the parsing.
    """

    __slots__ = ("_at", "_loop", "_reached", "_rings_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, reached: Callable[[], None]) -> None:
        self._loop = loop
        self._reached = reached
        self._at = _NEVER
        self._rings_at = _NEVER
        self._timer: asyncio.TimerHandle | None = None

    @property
    def at(self) -> float:
        """Return the time of the deadline, by the loop's clock; infinite if there is none."""
        return self._at

    def set(self, seconds: float) -> None:
        """From now on the limit is reached after `seconds`."""
        self._at = at = self._loop.time() + seconds
        if at < self._rings_at:
            self._ring_at(at)

    def clear(self) -> None:
        """There is no limit."""
        self._at = _NEVER

    def end(self) -> None:
        """There will be no limit any more. Whoever was to be told is forgotten: it knows this object, and a worker
        looks for cycles so seldom that thousands of closed connections would wait for it."""
        self._at = _NEVER
        self._reached = _nobody
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._rings)

    def _rings(self) -> None:
        self._timer = None
        self._rings_at = _NEVER
        if self._at == _NEVER:
            return
        if self._loop.time() < self._at:
            self._ring_at(self._at)
        else:
            self._at = _NEVER
            self._reached()


def _nobody() -> None:
    """Whom a limit concerns after the end."""
