"""Telling a retry of a call that was captured from a call of its own."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from slipstream.capture.completion import CapturedCall
from slipstream.capture.place import Place

WINDOW = 900.0
"""Seconds. The openai SDK gives up on an attempt after 600 s and waits at most 60 s (`retry-after`) before the next."""


class Attempt(NamedTuple):
    """A captured call that may be tried again.

    Attributes:
        named: a header names its session or its task.
        msg_id: as the provider gave it.
        started_at, ended_at: Unix seconds.
        seen_at: by the clock of `Retries`.
    """

    digest: bytes
    retry: int
    place: Place
    named: bool
    msg_id: str | None
    started_at: float
    ended_at: float
    seen_at: float


class Retries:
    """Recently captured calls, which their clients may send again.

    A client sends a call again when it did not get the answer, although the proxy may have passed on all of it. So the
    answer that it has is the later one, which takes the place of the earlier one. Who says that it is a retry may also
    be another user, who asks the same and whose first attempt failed. So an earlier attempt counts once, and only if it
    had ended before and its conversation did not go on, for then its client has got the answer.

    Args:
        limit: calls kept; the oldest go first.
        window: seconds that a call is kept.
        clock: seconds, monotonic.
    """

    def __init__(self, limit: int, window: float = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._window = window
        self._clock = clock
        self._numbers = 0
        self._by_age: OrderedDict[int, Attempt] = OrderedDict()
        self._by_digest: dict[bytes, dict[int, None]] = {}
        self._by_session: dict[str, int] = {}
        """The newest call of each session, where no header names it or its task."""

    def earlier(self, call: CapturedCall) -> Attempt | None:
        """The attempt of which the call is a retry, which is forgotten; None for a call of its own."""
        now = self._clock()
        while self._by_age and now - next(iter(self._by_age.values())).seen_at > self._window:
            self._forget(next(iter(self._by_age)))
        if not call.retry:
            return None
        for number in reversed(self._by_digest.get(call.digest, ())):
            attempt = self._by_age[number]
            if attempt.retry < call.retry and attempt.ended_at <= call.started_at:
                self._forget(number)
                return attempt
        return None

    def add(self, call: CapturedCall, place: Place) -> None:
        """Remember a call. What came before it in its session is not tried again, unless a header names the session or
        the task: agents make calls of such a one at the same time."""
        number = self._numbers = self._numbers + 1
        named = call.session_named or call.task_id is not None
        if not named:
            if (before := self._by_session.get(place.session_id)) is not None:
                self._forget(before)
            self._by_session[place.session_id] = number
        ran = call.started_at, call.started_at + call.latency
        self._by_age[number] = Attempt(call.digest, call.retry, place, named, call.msg_id, *ran, self._clock())
        self._by_digest.setdefault(call.digest, {})[number] = None
        if len(self._by_age) > self._limit:
            self._forget(next(iter(self._by_age)))

    def _forget(self, number: int) -> None:
        attempt = self._by_age.pop(number)
        same = self._by_digest[attempt.digest]
        del same[number]
        if not same:
            del self._by_digest[attempt.digest]
        if not attempt.named:
            del self._by_session[attempt.place.session_id]
