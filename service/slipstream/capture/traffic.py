"""Production's traffic of the last minute: what the proxy's workers and capture have counted, looked at each 5 s.

Nothing is counted here, and nothing is asked of a worker: what its counters have risen by is the window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slipstream.capture.outcomes import OutcomeWindow
from slipstream.proxy.metrics import SharedCounters

WINDOW = 60.0
"""Seconds."""

TICK = 5.0
"""Seconds between two looks at the counters: so often the figures change."""

_CLASSES = ("2xx", "3xx", "4xx", "5xx")

_Sample = Mapping[tuple[str, str], float]
"""Values of counters and gauges, by name and by the last label: a status, a limit, the bound of a bucket."""


class TrafficWindow:
    """Figures of the last minute, of this process's time and of this sidecar alone.

    Args:
        shared: counters of the proxy's workers; what they hold by now is of before.
        outcomes: the counters of capture.
    """

    def __init__(
        self, shared: SharedCounters, outcomes: OutcomeWindow, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._shared = shared
        self._outcomes = outcomes
        self._monotonic = monotonic
        self._looks: deque[tuple[float, _Sample]] = deque([(monotonic(), self._sample())])

    async def step(self) -> bool:
        """Remember the counters as they are now."""
        now = self._monotonic()
        self._looks.append((now, self._sample()))
        while now - self._looks[1][0] >= WINDOW:
            self._looks.popleft()
        return False

    def figures(self) -> dict[str, Any]:
        """Return `traffic` of GET /status. What cannot be computed is None, such as rates before the second look."""
        (since, before), (until, now) = self._looks[0], self._looks[-1]
        seconds = until - since
        # workers of another release begin at 0 again
        risen = {key: max(0.0, value - before.get(key, 0.0)) for key, value in now.items()}

        def total(name: str) -> int:
            return int(sum(value for (of, _), value in risen.items() if of == name))

        def buckets(name: str) -> list[tuple[float, float]]:
            return [(float(label), value) for (of, label), value in risen.items() if of == f"{name}_bucket"]

        requests = total("slipstream_proxy_requests_total")
        added = buckets("slipstream_proxy_added_seconds")
        first_byte = buckets("slipstream_serving_first_byte_seconds")
        return {
            "seconds": round(seconds, 1),
            "requests": requests,
            "requests_per_second": round(requests / seconds, 3) if seconds else None,
            "by_status": {name: int(risen["slipstream_proxy_requests_total", name]) for name in _CLASSES},
            "failed": total("slipstream_proxy_upstream_errors_total"),
            "refused": total("slipstream_proxy_refused_total"),
            "added_seconds": {"p50": quantile(added, 0.5), "p99": quantile(added, 0.99)},
            "first_byte_seconds": {"p50": quantile(first_byte, 0.5), "p99": quantile(first_byte, 0.99)},
            "open": int(now["slipstream_proxy_in_flight", ""]),
            "connections": int(now["slipstream_proxy_connections", ""]),
            "captured": total("captured"),
            "not_captured": total("reason"),
        }

    def _sample(self) -> _Sample:
        found: dict[tuple[str, str], float] = {}
        for family in self._shared.collect():
            for sample in family.samples:
                label = sample.labels.get("le") or next(iter(sample.labels.values()), "")
                found[sample.name, label] = found.get((sample.name, label), 0.0) + sample.value  # over the arms
        return {**found, **self._outcomes.counted()}


def quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """The value below which this share of the observations lies, as Prometheus' histogram_quantile estimates it.

    Args:
        buckets: upper bounds, ascending and the last one infinite, each with the number of observations up to it.

    Returns:
        None without observations; of those beyond the last finite bound, that bound.
    """
    if not buckets or not (wanted := buckets[-1][1] * share):
        return None
    below, counted = 0.0, 0.0
    for bound, up_to in buckets:
        if up_to >= wanted:
            if bound == float("inf"):
                break
            return round(below + (bound - below) * (wanted - counted) / (up_to - counted), 6)
        below, counted = bound, up_to
    return below
