"""Use of each key, counted in memory that the workers share, for limits and for Prometheus.

As in `proxy/metrics.py` each worker has a row that it alone writes, and reads those of the others: a limit holds for
the sidecar, whichever worker a request comes to. A key is known by its name, so that a key that takes the place of
another under the same name goes on with what that one had left.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

Outcome = Literal["admitted", "forbidden", "limited", "unauthorized"]

_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

A_KEYS: tuple[Outcome, ...] = ("admitted", "forbidden", "limited")
"""Outcomes of requests with a valid key."""

NOBODYS: tuple[Outcome, ...] = ("forbidden", "unauthorized")
"""Outcomes of requests without one."""

NOBODY = "(none)"
"""The name under which requests without a valid key are counted: none that a key may have."""

_WINDOW = 60
"""Seconds."""

# What each name has in a row: itself, its minute, the requests in it, the second of its last one, and the outcomes.
_NAME = 64
_MINUTE, _IN_MINUTE, _LAST, _COUNTS = (_NAME // 8 + cell for cell in range(4))
_CELLS = _COUNTS + len(_OUTCOMES)

_NAMES = 1024
"""In the life of a sidecar; whatever name comes after them shares the last one's place."""

_ROW = _NAMES * _CELLS

ROW_BYTES = _ROW * 8


@dataclass(slots=True)
class Use:
    """Use of one key.

    Attributes:
        requests: how many came to each outcome.
        last_at: time of the last one, in whole Unix seconds; 0 before the first one.
    """

    requests: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(_OUTCOMES, 0))
    last_at: int = 0


class Ledger:
    """The rows of all workers, in memory that their processes share.

    Args:
        workers: how many rows there are.
        memory: `ROW_BYTES` a row; None for some that only forked processes see.
        used: returns how many rows have been in use; None for all of them.
    """

    def __init__(self, workers: int, memory: memoryview | None = None, used: Callable[[], int] | None = None) -> None:
        self._bytes = memoryview(mmap.mmap(-1, workers * ROW_BYTES)) if memory is None else memory
        self.cells = self._bytes.cast("Q")
        self._used = used or (lambda: workers)

    @property
    def workers(self) -> int:
        """Return how many rows have been in use."""
        return self._used()

    def place(self, worker: int, name: str) -> int:
        """Return the index of a name's cells in a worker's row, or of the first free cells, which are all 0."""
        last = (worker + 1) * _ROW - _CELLS
        for place in range(worker * _ROW, last, _CELLS):
            if self._name(place) in (name, ""):
                return place
        return last

    def take(self, worker: int, name: str) -> int:
        """The same, and from now on the place is this name's. For that worker alone."""
        place = self.place(worker, name)
        self._bytes[place * 8 : place * 8 + _NAME] = name.encode("ascii").ljust(_NAME, b"\0")
        return place

    def use(self) -> dict[str, Use]:
        """The use of all names that have a place, over all workers; in one pass over the rows."""
        found: dict[str, Use] = {}
        for worker in range(self.workers):
            for place in range(worker * _ROW, (worker + 1) * _ROW, _CELLS):
                if not (name := self._name(place)):
                    break
                use = found.setdefault(name, Use())
                for at, outcome in enumerate(_OUTCOMES, start=place + _COUNTS):
                    use.requests[outcome] += self.cells[at]
                use.last_at = max(use.last_at, self.cells[place + _LAST])
        return found

    def _name(self, place: int) -> str:
        return bytes(self._bytes[place * 8 : place * 8 + _NAME]).rstrip(b"\0").decode("ascii")


class Book:
    """One worker's row.

    Args:
        clock: seconds, the same in all workers.
        time_of_day: Unix seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        worker: int,
        clock: Callable[[], float] = time.monotonic,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._worker = worker
        self._clock = clock
        self._time_of_day = time_of_day
        self._mine: dict[str, int] = {}

    def counts(self, name: str, outcome: Outcome) -> None:
        """A request of this name came to this."""
        cells, own = self._ledger.cells, self._own(name)
        cells[own + _COUNTS + _OUTCOMES.index(outcome)] += 1
        cells[own + _LAST] = int(self._time_of_day())

    def within(self, name: str, limit: int) -> float | None:
        """Take one of so many requests a minute; returns None, or the seconds until there are some again."""
        cells, own = self._ledger.cells, self._own(name)
        minute, into = divmod(self._clock(), _WINDOW)
        now = int(minute) + 1  # 0 is that of a place that nobody wrote
        if cells[own + _MINUTE] != now:
            cells[own + _MINUTE], cells[own + _IN_MINUTE] = now, 0
        used = 0
        for worker in range(self._ledger.workers):
            place = own if worker == self._worker else self._ledger.place(worker, name)
            if cells[place + _MINUTE] == now:
                used += cells[place + _IN_MINUTE]
        if used >= limit:
            return _WINDOW - into
        cells[own + _IN_MINUTE] += 1
        return None

    def _own(self, name: str) -> int:
        place = self._mine.get(name)
        if place is None:
            place = self._mine[name] = self._ledger.take(self._worker, name)
        return place


class KeyUse(Collector):
    """Prometheus collector for the use of keys."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "slipstream_key_requests",
            "Requests by the name of their API key and what became of them; those of no valid key: (none).",
            labels=["key", "outcome"],
        )
        for name, use in sorted({NOBODY: Use(), **self._ledger.use()}.items()):
            for outcome in NOBODYS if name == NOBODY else A_KEYS:
                requests.add_metric([name, outcome], use.requests[outcome])
        yield requests
