"""A worker's breaker: a lane that failed several times in a row is not asked for a while."""

from __future__ import annotations


class LaneBreaker:
    """Counts the failures of a lane in a row. Requests that it keeps from the lane count as failures of the version all
    the same, so that a version does not look better for being away.

    Args:
        failures: in a row, after which the lane is left alone.
        pause: seconds; then one request tries it.
    """

    def __init__(self, failures: int, pause: float) -> None:
        self._most = failures
        self._pause = pause
        self._failures = 0
        self._closed_until = 0.0

    def allows(self, now: float) -> bool:
        """Return whether the lane may be asked. Where it failed, True is returned once a pause.

        Args:
            now: seconds of a clock that never goes back.
        """
        if self._failures < self._most:
            return True
        if now < self._closed_until:
            return False
        self._closed_until = now + self._pause  # the others wait for what becomes of this one
        return True

    def succeeded(self) -> None:
        """An answer of the lane came to its end, or it serves something else: it is asked again."""
        self._failures = 0

    def failed(self, now: float) -> bool:
        """The lane failed; returns whether it is left alone because of that, and was not before."""
        self._failures += 1
        if self._failures < self._most:
            return False
        self._closed_until = now + self._pause
        return self._failures == self._most
