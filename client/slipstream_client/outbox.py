"""Queue of requests to the sidecar that are sent in the background, so that an agent never waits for it and never fails
by it.

One thread sends in the order of `put`, so that what is said later counts. What does not arrive stays, within bounds.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from slipstream_client.context import carried
from slipstream_client.errors import SidecarAway, SidecarRefused
from slipstream_client.service import Request, Service

Outcome = Literal["sent", "refused", "dropped"]

logger = logging.getLogger("slipstream_client")

MOST = 1000
"""Requests that wait: hours of a busy agent's feedback."""

MOST_BYTES = 4 * 1024 * 1024
"""Their bodies in all, so that an agent with a small container never notices them."""

ATTEMPTS = 5
"""Tries of a request at which the sidecar fails (500) although it is there: it would hold up all others."""

LONGEST_PAUSE = 30.0
"""Seconds between attempts while the sidecar is away."""

PASSING_FOR = 60.0
"""Seconds within which a passing request is worth sending."""

AT_EXIT = 2.0
"""Seconds that the end of the program may wait for what is left."""

_AWAY = frozenset({408, 429, 502, 503, 504})
"""Statuses of a sidecar that starts, is busy, or is away behind a gateway; others are its failure at this request."""

_DISTINCT_WARNINGS = 20
"""A program that is refused says so; one that is refused each time in other words does not fill the log."""


@dataclass(frozen=True)
class OutboxCounts:
    """Numbers of marks and feedback by their result, since the process began.

    Attributes:
        waiting: not sent yet, with `waiting_bytes` of bodies.
        sent: stored by the sidecar.
        refused: not taken by the sidecar, which said why in the log.
        dropped: given up: the queue was full, or their time was over.
    """

    waiting: int
    waiting_bytes: int
    sent: int
    refused: int
    dropped: int


@dataclass(frozen=True)
class _Item:
    request: Request[Any]
    size: int
    since: float
    passing: bool


class Outbox:
    """A bounded queue and the thread that empties it; the thread starts with the first request.

    Args:
        most, most_bytes: of what waits. Beyond them the oldest goes; a single request beyond `most_bytes` goes itself.
        first_pause: seconds before the second attempt; each pause doubles, up to `LONGEST_PAUSE`.
    """

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES, first_pause: float = 0.5) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._first_pause = first_pause
        self._changed = threading.Condition()
        self._hurry = threading.Event()
        self._items: deque[_Item] = deque()
        self._under_way: _Item | None = None
        self._bytes = 0
        self._ended: dict[Outcome, int] = {"sent": 0, "refused": 0, "dropped": 0}
        self._thread: threading.Thread | None = None
        self._service = Service()
        self._warned: set[str] = set()
        self._away = False
        self._closed = False

    def put(self, request: Request[Any], *, passing: bool = False) -> None:
        """Have it sent. Returns at once, and raises nothing.

        Args:
            passing: what it says holds for the moment (it names "the last answer"): it is given up after
                `PASSING_FOR`, and not sent again where it may have arrived.
        """
        try:
            item = _Item(request, len(json.dumps(request.body)), time.monotonic(), passing)
            with self._changed:
                if self._closed:
                    self._ended["dropped"] += 1
                    self._warn(
                        "marks and feedback are dropped: the program ends, and the client has sent its last ones. "
                        "Register the function that gives them later: atexit runs the newest one first"
                    )
                    return
                if item.size > self._most_bytes:
                    self._ended["dropped"] += 1
                    self._warn(f"a mark or feedback is dropped: it is longer than the {self._most_bytes} bytes kept")
                    return
                self._items.append(item)
                self._bytes += item.size
                while len(self._items) > self._most or self._bytes > self._most_bytes:
                    self._bytes -= self._items.popleft().size
                    self._ended["dropped"] += 1
                    self._warn("marks and feedback are dropped: more wait for the sidecar than are kept")
                if self._thread is None:
                    # also where a start failed before; never with the context of whoever comes first
                    thread = threading.Thread(target=self._work, name="slipstream-outbox", daemon=True)
                    with carried(None):
                        thread.start()
                    self._thread = thread
                self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - feedback must not break an agent
            self._warn(f"marks and feedback cannot be sent: {error!r}")

    def flush(self, timeout: float) -> bool:
        """Wait until everything is sent or given up, at most so many seconds; whether it is."""
        self._hurry.set()
        with self._changed:
            return self._changed.wait_for(lambda: not self._items and self._under_way is None, timeout)

    def counts(self) -> OutboxCounts:
        with self._changed:
            waiting = len(self._items) + (self._under_way is not None)
            return OutboxCounts(waiting, self._bytes, **self._ended)

    def close(self, timeout: float) -> None:
        """Send what is left, for at most so many seconds, and end the thread."""
        if not self.flush(timeout):
            logger.warning("%d of the marks and feedback did not reach the sidecar", self.counts().waiting)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._hurry.set()

    def _work(self) -> None:
        while (item := self._next()) is not None:
            outcome = self._deliver(item)
            if self._away and outcome != "dropped":
                self._away = False
                logger.info("the sidecar is back")
            with self._changed:
                self._bytes -= item.size
                self._ended[outcome] += 1
                self._under_way = None
                self._changed.notify_all()
        self._service.close()

    def _next(self) -> _Item | None:
        """Wait for the next item; None where there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._closed)
            if self._closed:
                return None
            self._under_way = self._items.popleft()
            return self._under_way

    def _deliver(self, item: _Item) -> Outcome:
        """Send it until that has an outcome, however long the sidecar is away."""
        attempt = 0
        while not self._closed and not (item.passing and time.monotonic() - item.since > PASSING_FOR):
            attempt += 1
            try:
                self._service.send(item.request)
            except SidecarRefused as error:
                self._warn(f"refused: {error}")
                return "refused"
            except SidecarAway as error:
                if not self._away:
                    self._away = True
                    logger.warning("marks and feedback wait for the sidecar, and the agent goes on: %s", error)
                failing = error.status is not None and error.status not in _AWAY
                if item.passing and error.received:
                    break
                if failing and attempt >= ATTEMPTS:
                    return "dropped"
                self._hurry.wait(min(self._first_pause * 2 ** min(attempt - 1, 20), LONGEST_PAUSE))
                self._hurry.clear()
            except Exception as error:  # noqa: BLE001 - the thread serves what comes next
                self._warn(f"marks and feedback cannot be sent: {error!r}")
                return "dropped"
            else:
                return "sent"
        if item.passing and not self._closed:
            self._warn(
                "feedback by session_id is dropped: it may have arrived, or waited for a minute, and by now the "
                "session's last answer may be another one"
            )
        return "dropped"

    def _warn(self, message: str) -> None:
        if message not in self._warned and len(self._warned) < _DISTINCT_WARNINGS:
            self._warned.add(message)
            logger.warning("%s (said once)", message)


_outbox = Outbox()


def put(request: Request[Any], *, passing: bool = False) -> None:
    """See `Outbox.put`."""
    _outbox.put(request, passing=passing)


def flush(timeout: float = 5.0) -> bool:
    """Wait until the marks and feedback so far have reached the sidecar or were given up.

    Args:
        timeout: seconds at most.

    Returns:
        Whether nothing is left.
    """
    return _outbox.flush(timeout)


def outbox_counts() -> OutboxCounts:
    """Return how many requests wait for the sidecar, and how many ended in which way."""
    return _outbox.counts()


def _renew() -> None:
    """In a forked child: the thread stayed with the parent, which also sends what waits there."""
    global _outbox
    _outbox = Outbox()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
atexit.register(lambda: _outbox.close(AT_EXIT))
