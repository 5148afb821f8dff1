"""A circuit breaker: a dead Explorer or webhook is left alone, and one call at a time finds out whether it is back.

    closed ──(failures in a row reach the limit)──▶ open ──(the pause is over)──▶ half-open: one trial call
      ▲                                               ▲                              │
      └────────────────(any success)                  └──(it fails: the pause doubles)┘

M. Nygard, "Release It!", 2007. Its own forty lines because pybreaker and aiobreaker wrap a call, while here a
dispatcher asks beforehand whether taking work from the store makes sense at all.
"""

from __future__ import annotations

from collections.abc import Callable

_FAILURES = 5
"""Failures in a row that open it: more than a single lost connection of each kind, fewer than one full batch."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
"""Seconds. What was restarted is noticed within half a minute."""


class CircuitBreaker:
    """Says whether the next call should be made.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = _FIRST_PAUSE
        self._opened_at: float | None = None
        self._trial = False

    @property
    def state(self) -> str:
        """closed, open or half_open."""
        if self._opened_at is None:
            return "closed"
        return "open" if self._clock() - self._opened_at < self._pause else "half_open"

    def admits(self) -> int | None:
        """Return how many calls may start now: None for no limit, 1 for a trial, 0 for none."""
        if self.state == "closed":
            return None
        return 1 if self.state == "half_open" and not self._trial else 0

    def started(self) -> None:
        """A call starts: while half open, it is the trial."""
        self._trial = self._opened_at is not None

    def succeeded(self) -> None:
        self._failures, self._pause, self._opened_at, self._trial = 0, _FIRST_PAUSE, None, False

    def failed(self, *, there: bool = False) -> None:
        """A call failed. Where somebody was `there` and failed, the next trial may go better: the pause stays."""
        self._failures += 1
        if self._trial:
            self._pause = self._pause if there else min(_LONGEST_PAUSE, self._pause * 2)
            self._opened_at, self._trial = self._clock(), False
        elif self._opened_at is None and self._failures >= _FAILURES:
            self._opened_at = self._clock()
