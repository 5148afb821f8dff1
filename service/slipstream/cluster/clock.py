"""A clock that is set back while the sidecar runs, or was between two of its lives."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from slipstream.store.clock_skew import TOLERATED, bring_back
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)

TICK = 1.0
"""Seconds between two looks."""

_AFTERWARDS = 60.0
"""Seconds of looks after one was set back: who had asked the time before, and waited for the store, writes later."""


class ClockWatch:
    """Has what waits for a time of day wait no longer because the clock was set back.

    Args:
        clock: Unix seconds.
        monotonic: seconds of a clock that nobody sets.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        self._monotonic = monotonic
        self._apart: float | None = None
        self._look_until = 0.0
        self._looked_at: int | None = None

    async def step(self) -> bool:
        """Look whether it was set back; at first, whether an earlier process was ahead."""
        now, steady = self._clock(), self._monotonic()
        apart = now - steady
        if self._apart is None or apart < self._apart - TOLERATED:
            self._look_until = steady + _AFTERWARDS
            self._looked_at = None
        if steady < self._look_until and (self._database.shared or self._database.writes != self._looked_at):
            async with self._database.write() as session:
                moved = await bring_back(session, now, TOLERATED)
            self._looked_at = self._database.writes  # with its own, and there is none between the two
            if moved:
                _log.warning("clock_set_back", moved=moved)
        self._apart = apart
        return False
