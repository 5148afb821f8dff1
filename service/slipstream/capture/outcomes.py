"""Outcomes of the calls of the last ten minutes: how many were captured, and how many were not, by reason and route.

Nothing is counted here. The counters of Prometheus and of the proxy's workers are looked at six times a minute; what
they have risen by since ten minutes ago is the window. What the workers count of captured calls becomes part of the
training side's metrics, which count the same.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import prometheus_client

from slipstream.metrics import Metrics
from slipstream.proxy.metrics import SharedCounters

WINDOW = 600.0
"""Seconds."""

TICK = 10.0
"""Seconds between two looks at the counters."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Numbers of captured and of not captured calls.

    Attributes:
        captured: chat completions that were stored.
        reasons: chat completions that were not, by reason: `dialects.body.Reason`, `rate`, `lease_lost` and
            `capture_queue_full`.
        routes: calls of other routes, by `proxy.uncaptured.UncapturedRoute`.
    """

    captured: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    routes: Mapping[str, int] = field(default_factory=dict)


class OutcomeWindow:
    """The outcomes of the last ten minutes, of this process's time.

    Args:
        shared: counters of the proxy's workers; what they hold by now is of before.
    """

    def __init__(
        self, metrics: Metrics, shared: SharedCounters, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._shared = shared
        self._monotonic = monotonic
        self._taken_over = 0, 0
        self._looks = deque([(monotonic(), self.counted())])

    def take_over(self) -> None:
        """Add what the workers have counted since the last time to the metrics: calls dropped, and left out by the
        rate."""
        dropped, left_out = self._shared.dropped, self._shared.left_out
        before, self._taken_over = self._taken_over, (dropped, left_out)
        self._metrics.dropped.labels("capture_queue_full").inc(dropped - before[0])
        if left_out > before[1]:
            self._metrics.not_captured.labels("rate").inc(left_out - before[1])

    def look(self) -> None:
        """Remember the counters as they are now."""
        now = self._monotonic()
        self._looks.append((now, self.counted()))
        while now - self._looks[1][0] >= WINDOW:
            self._looks.popleft()

    def outcomes(self) -> Outcomes:
        """Return the numbers of the current window."""
        counted = self.counted() - self._looks[0][1]
        groups: dict[str, dict[str, int]] = {"reason": {}, "route": {}}
        for (kind, name), calls in counted.items():
            if kind in groups:
                groups[kind][name] = calls
        return Outcomes(counted["captured", ""], groups["reason"], groups["route"])

    def counted(self) -> Counter[tuple[str, str]]:
        """Return the counters as they are now: `captured`, calls not captured by `reason`, and by `route`."""
        self.take_over()
        metrics, shared = self._metrics, self._shared
        counters = Counter({("captured", ""): int(_values(metrics.captured).get("", 0))})
        counters.update({("reason", reason): int(calls) for reason, calls in _values(metrics.not_captured).items()})
        counters["reason", "lease_lost"] = int(_values(metrics.dropped).get("lease_lost", 0))
        counters["reason", "capture_queue_full"] = shared.dropped
        counters.update({("route", route): calls for route, calls in shared.uncaptured.items()})
        return counters


def _values(counter: prometheus_client.Counter) -> dict[str, float]:
    """The values of a counter by its label, "" where it has none."""
    [family] = counter.collect()
    return {
        "".join(sample.labels.values()): sample.value for sample in family.samples if sample.name.endswith("_total")
    }
