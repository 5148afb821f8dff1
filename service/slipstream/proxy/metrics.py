"""Counters of the proxy, in memory that its processes share, summed up for Prometheus.

Each worker has a row of cells that it alone writes, so counting needs no lock and takes some 100 ns; the rows outlive
a worker that dies. prometheus_client's own counters cost several times that, and its multi-process mode needs files.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import get_args

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from slipstream.http.errors import Cause
from slipstream.proxy import serving_metrics
from slipstream.proxy.limits import Limit
from slipstream.proxy.serving_metrics import ServingMetrics
from slipstream.proxy.uncaptured import UncapturedRoute

_ADDED = (50e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.25, 1.0)
"""Seconds: the sidecar's own time is some hundred microseconds; what lies above 5 ms is a loop that was blocked."""

_CONNECT = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_CLASSES = ("2xx", "3xx", "4xx", "5xx")
_CAUSES: tuple[Cause, ...] = get_args(Cause)
_LIMITS: tuple[Limit, ...] = get_args(Limit)
_ROUTES: tuple[UncapturedRoute, ...] = get_args(UncapturedRoute)

# Where in a row each number is. A histogram has a cell for each bucket, one for what is beyond them, and its sum.
_ANSWERS = 0
_FAILURES = _ANSWERS + len(_CLASSES)
_CALLER_GONE = _FAILURES + len(_CAUSES)
_TAP_FAILURES = _CALLER_GONE + 1
_DROPPED = _TAP_FAILURES + 1
_DROPPED_AT = _DROPPED + 1
_LEFT_OUT = _DROPPED_AT + 1
_TRACES_DROPPED = _LEFT_OUT + 1
_IN_FLIGHT = _TRACES_DROPPED + 1
_WAITING = _IN_FLIGHT + 1
_TASKS = _WAITING + 1
_CONNECTIONS = _TASKS + 1
_REFUSED = _CONNECTIONS + 1
_UNCAPTURED = _REFUSED + len(_LIMITS)
_ADDED_CELLS = _UNCAPTURED + len(_ROUTES)
_CONNECT_CELLS = _ADDED_CELLS + len(_ADDED) + 2
_SERVING = _CONNECT_CELLS + len(_CONNECT) + 2
_CELLS = _SERVING + serving_metrics.CELLS
_ADDED_SUM = _CONNECT_CELLS - 1
_CONNECT_SUM = _SERVING - 1

ROW_BYTES = _CELLS * 8

LAYOUT = repr((_CELLS, _CLASSES, _CAUSES, _LIMITS, _ROUTES, _ADDED, _CONNECT, serving_metrics.LAYOUT))
"""The same for all releases whose rows mean the same."""


class ProxyMetrics:
    """One worker's counters.

    Args:
        cells: its row of a `SharedCounters`.

    Attributes:
        serving: what it counts of users that a share is set for.
    """

    __slots__ = ("_cells", "serving")

    def __init__(self, cells: memoryview[float]) -> None:
        self._cells = cells
        self.serving = ServingMetrics(cells[_SERVING:])
        self.rest()  # what a worker that died had under way is under way no more

    def rest(self) -> None:
        """Nothing is under way in this worker."""
        cells = self._cells
        cells[_IN_FLIGHT] = cells[_WAITING] = cells[_CONNECTIONS] = cells[_TASKS] = 0.0

    def begins(self) -> None:
        """An exchange is under way."""
        self._cells[_IN_FLIGHT] += 1.0

    def ends(self) -> None:
        self._cells[_IN_FLIGHT] -= 1.0

    @property
    def in_flight(self) -> float:
        """Return how many exchanges are under way."""
        return self._cells[_IN_FLIGHT]

    def connections(self, open_now: int) -> None:
        """So many connections of agents are open."""
        self._cells[_CONNECTIONS] = open_now

    def refused(self, limit: Limit) -> None:
        """A request, or a connection, was ended by this limit."""
        self._cells[_REFUSED + _LIMITS.index(limit)] += 1.0

    def uncaptured(self, route: UncapturedRoute) -> None:
        """A call of this route was answered, which capture cannot read."""
        self._cells[_UNCAPTURED + _ROUTES.index(route)] += 1.0

    def answered(self, status: int) -> None:
        """An answer with this status, 200 to 599, has started."""
        self._cells[_ANSWERS + status // 100 - 2] += 1.0

    def added(self, seconds: float) -> None:
        """The sidecar's own time until an answer started."""
        cells = self._cells
        cells[_ADDED_CELLS + bisect_left(_ADDED, seconds)] += 1.0
        cells[_ADDED_SUM] += seconds

    def connected(self, seconds: float) -> None:
        """A connection to production was opened in this time."""
        self._cells[_CONNECT_CELLS + bisect_left(_CONNECT, seconds)] += 1.0
        self._cells[_CONNECT_SUM] += seconds

    def upstream_failed(self, cause: Cause) -> None:
        self._cells[_FAILURES + _CAUSES.index(cause)] += 1.0

    def caller_gone(self) -> None:
        self._cells[_CALLER_GONE] += 1.0

    def tap_failed(self) -> None:
        self._cells[_TAP_FAILURES] += 1.0

    def dropped(self, at: float) -> None:
        """An exchange was not captured because too many wait; `at`: Unix seconds."""
        self._cells[_DROPPED] += 1.0
        self._cells[_DROPPED_AT] = at

    def left_out(self) -> None:
        """A call was left out by `capture.rate`."""
        self._cells[_LEFT_OUT] += 1.0

    def trace_dropped(self) -> None:
        """The trace of a call was dropped with its copy, because too many wait."""
        self._cells[_TRACES_DROPPED] += 1.0

    def waiting(self, exchanges: int) -> None:
        """So many exchanges wait to be taken over by the training side."""
        self._cells[_WAITING] = exchanges

    def tasks(self, count: int) -> None:
        """So many tasks of asyncio live in this worker."""
        self._cells[_TASKS] = count


class SharedCounters(Collector):
    """The counters of all workers, in memory that their processes share.

    Args:
        workers: how many rows there are.
        memory: `ROW_BYTES` a row; None for some that only forked processes see.
    """

    def __init__(self, workers: int, memory: memoryview | None = None) -> None:
        cells = (memoryview(mmap.mmap(-1, workers * ROW_BYTES)) if memory is None else memory).cast("d")
        self._rows = [cells[row * _CELLS : (row + 1) * _CELLS] for row in range(workers)]

    def row(self, worker: int) -> ProxyMetrics:
        """The counters of one worker, counted from 0; for that worker alone."""
        return ProxyMetrics(self._rows[worker])

    @property
    def dropped_at(self) -> float | None:
        """Return when an exchange was last dropped because too many waited, in Unix seconds; None for never."""
        return max(row[_DROPPED_AT] for row in self._rows) or None

    @property
    def dropped(self) -> int:
        """Exchanges dropped because too many waited."""
        return int(self._sum(_DROPPED))

    @property
    def left_out(self) -> int:
        """Calls left out by `capture.rate`, of which nothing was copied."""
        return int(self._sum(_LEFT_OUT))

    @property
    def uncaptured(self) -> dict[UncapturedRoute, int]:
        """Calls that capture cannot read, by route."""
        return {route: int(self._sum(_UNCAPTURED + place)) for place, route in enumerate(_ROUTES)}

    @property
    def kept_from_lane(self) -> int:
        """Requests of users that a worker did not send to the lane because it had failed several times in a row."""
        return serving_metrics.kept_from_lane([row[_SERVING:] for row in self._rows])

    @property
    def waiting(self) -> int:
        """Exchanges that wait in the workers."""
        return int(self._sum(_WAITING))

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics for Prometheus."""
        requests = CounterMetricFamily(
            "slipstream_proxy_requests",
            "Answers to production traffic by class of status, those that the proxy itself gave included.",
            labels=["status"],
        )
        for place, name in enumerate(_CLASSES):
            requests.add_metric([name], self._sum(_ANSWERS + place))
        yield requests
        failures = CounterMetricFamily(
            "slipstream_proxy_upstream_errors",
            "Exchanges that production did not finish, by cause.",
            labels=["cause"],
        )
        for place, cause in enumerate(_CAUSES):
            failures.add_metric([cause], self._sum(_FAILURES + place))
        yield failures
        yield CounterMetricFamily(
            "slipstream_proxy_caller_gone",
            "Exchanges whose caller left before the end of its answer.",
            self._sum(_CALLER_GONE),
        )
        yield CounterMetricFamily(
            "slipstream_proxy_tap_failures", "Exchanges that capture failed to take.", self._sum(_TAP_FAILURES)
        )
        yield CounterMetricFamily(
            "slipstream_proxy_traces_dropped",
            "Calls whose trace was dropped because too many copies waited.",
            self._sum(_TRACES_DROPPED),
        )
        uncaptured = CounterMetricFamily(
            "slipstream_proxy_uncaptured",
            "Calls that production answered and capture cannot read, by route.",
            labels=["route"],
        )
        for route, calls in self.uncaptured.items():
            uncaptured.add_metric([route], calls)
        yield uncaptured
        yield GaugeMetricFamily("slipstream_proxy_in_flight", "Exchanges under way.", self._sum(_IN_FLIGHT))
        yield GaugeMetricFamily(
            "slipstream_proxy_connections", "Connections of agents that are open.", self._sum(_CONNECTIONS)
        )
        refused = CounterMetricFamily(
            "slipstream_proxy_refused",
            "Requests and connections ended by a limit, by its key, and websockets.",
            labels=["limit"],
        )
        for place, limit in enumerate(_LIMITS):
            refused.add_metric([limit], self._sum(_REFUSED + place))
        yield refused
        yield GaugeMetricFamily("slipstream_proxy_tasks", "Tasks of asyncio that live.", self._sum(_TASKS))
        yield self._histogram(
            "slipstream_proxy_added_seconds",
            "Time in the sidecar until the answer starts: from the request's last byte received to its last byte sent "
            "on, and from the answer's head received to its head sent on. Without opening connections.",
            _ADDED_CELLS,
            _ADDED,
        )
        yield self._histogram(
            "slipstream_proxy_connect_seconds",
            "Time to open a new connection to production, TLS included.",
            _CONNECT_CELLS,
            _CONNECT,
        )
        yield from serving_metrics.collected([row[_SERVING:] for row in self._rows])

    def _sum(self, cell: int) -> float:
        return float(sum(row[cell] for row in self._rows))

    def _histogram(self, name: str, text: str, first: int, bounds: Sequence[float]) -> HistogramMetricFamily:
        buckets, count = [], 0.0
        for place, bound in enumerate((*bounds, float("inf"))):
            count += self._sum(first + place)
            buckets.append(("+Inf" if bound == float("inf") else str(bound), count))
        return HistogramMetricFamily(name, text, buckets, self._sum(first + len(bounds) + 1))
