"""Counters of a TrainingRunner, and the warnings that it gives once a kind."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

logger = logging.getLogger("slipstream_client")


@dataclass(frozen=True)
class RunnerStats:
    """Numbers of what a TrainingRunner has done so far.

    Attributes:
        calls: of decorated agents while it was started, those inside other ones and in replays left out.
        selected: calls that were to run again.
        dropped: selected calls that did not, by reason.
        waiting: tasks in the queue.
        running: runs that have a slot: also one that was given up and whose thread has not returned.
        finished: runs that the sidecar took.
        failed: runs that were dropped, by reason.
        commits: that the sidecar carried out.
    """

    calls: int
    selected: int
    dropped: Mapping[str, int]
    waiting: int
    running: int
    finished: int
    failed: Mapping[str, int]
    commits: int


class Tally:
    """Counters that any thread may raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._warned: set[str] = set()

    def add(self, what: str, number: int = 1) -> None:
        with self._lock:
            self._counts[what] += number

    def dropped(self, reason: str, why: str, *args: object, error: BaseException | None = None) -> None:
        with self._lock:
            self._dropped[reason] += 1
        self._warn(f"dropped {reason}", "a call is not run again: " + why, args, error)

    def failed(self, reason: str, why: str, *args: object, error: BaseException | None = None) -> None:
        with self._lock:
            self._failed[reason] += 1
        self._warn(f"failed {reason}", "a replay is dropped: " + why, args, error)

    def warn(self, kind: str, message: str, *args: object) -> None:
        """A warning in the log, the first time for its kind."""
        self._warn(kind, message, args, None)

    def stats(self) -> RunnerStats:
        with self._lock:
            return RunnerStats(
                calls=self._counts["calls"],
                selected=self._counts["selected"],
                dropped=dict(self._dropped),
                waiting=self._counts["waiting"],
                running=self._counts["running"],
                finished=self._counts["finished"],
                failed=dict(self._failed),
                commits=self._counts["commits"],
            )

    def forked(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.Lock()
        self._counts["waiting"] = self._counts["running"] = 0

    def _warn(self, kind: str, message: str, args: tuple[object, ...], error: BaseException | None) -> None:
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        logger.warning(message + " (said once)", *args, exc_info=error)
