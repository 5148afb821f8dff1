"""The throttle of the recorder: if CPU time is short, production and the writer go first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

LONGEST = 3.0
"""Seconds that a turn is put off at most. Reading never stands still, and feedback finds its call before it expires."""

_SHARE = 0.05
"""Share of the time that reading gets while CPU time is short."""

_SHORT = 0.25
"""Share of the time spent waiting for a CPU that counts as short: more than for a process whose core has time left."""

_LOOK = 0.02
"""Seconds between two looks at least; over less a single wait decides."""

_NANOSECOND = 1e-9
_TASKS = "/proc/self/task"


class RecorderThrottle:
    """Says how long the next turn is to be put off.

    Args:
        behind: whether the CaptureWriter has more to do than it gets done.
        waited: seconds that this process has waited for a CPU so far, None where the system does not tell.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        behind: Callable[[], bool],
        waited: Callable[[], float | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._behind = behind
        self._waited = waited
        self._clock = clock
        self._began = self._ended = clock() - LONGEST
        self._looked_at = clock()
        self._waited_by_then = waited()
        self._short = False

    def pause(self) -> float:
        """Seconds until the next turn, 0 where it may begin."""
        behind = self._behind()
        rest = LONGEST if behind else min((self._ended - self._began) / _SHARE, LONGEST)
        left = rest - (self._clock() - self._ended)
        return left if left > 0 and (behind or self._cpu_is_short()) else 0.0

    def begins(self) -> None:
        """A turn begins."""
        self._began = self._clock()

    def ends(self) -> None:
        """It has ended, whether it came to something or not."""
        self._ended = self._clock()

    def _cpu_is_short(self) -> bool:
        now = self._clock()
        passed = now - self._looked_at
        if passed >= _LOOK:
            waited, before = self._waited(), self._waited_by_then
            self._short = waited is not None and before is not None and waited - before > _SHORT * passed
            self._looked_at, self._waited_by_then = now, waited
        return self._short


def waited_for_cpu() -> float | None:
    """Seconds that the threads of this process have been ready to run and did not, in all; None where the system
    (another than Linux, or one without these counters) does not tell."""
    waited = 0
    try:
        for thread in os.listdir(_TASKS):
            try:
                with open(f"{_TASKS}/{thread}/schedstat", "rb", buffering=0) as counters:
                    waited += int(counters.read().split()[1])
            except ProcessLookupError:  # it has just ended
                continue
    except (OSError, IndexError, ValueError):
        return None
    return waited * _NANOSECOND
