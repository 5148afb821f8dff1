"""Telling a retry of a call that was captured from a call of its own."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from slipstream.capture.completion import CapturedCall

WINDOW = 900.0
"""Seconds. The openai SDK gives up on an attempt after 600 s and waits at most 60 s (`retry-after`) before the next."""


class Retries:
    """The digests of recently captured calls.

    A client sends a call again when it did not get the answer, although the proxy may have passed on all of it. Only
    what says that it is a retry is compared: two users who ask the same thing are two calls.

    Args:
        limit: digests kept; the oldest go first.
        window: seconds that a digest is kept.
        clock: seconds, monotonic.
    """

    def __init__(self, limit: int, window: float = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._window = window
        self._clock = clock
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def seen(self, call: CapturedCall) -> bool:
        """Return whether the call is a retry of an earlier one; it is remembered either way."""
        now = self._clock()
        while self._seen and now - next(iter(self._seen.values())) > self._window:
            self._seen.popitem(last=False)
        repeated = call.retry > 0 and call.digest in self._seen
        self._seen[call.digest] = now
        self._seen.move_to_end(call.digest)
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        return repeated
