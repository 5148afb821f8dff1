"""What the proxy counts, for Prometheus."""

from __future__ import annotations

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from slipstream.proxy.http1 import Cause

_ADDED = (50e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.25, 1.0)
"""Seconds: the sidecar's own time is some hundred microseconds; what lies above 5 ms is a loop that was blocked."""


class ProxyMetrics:
    """The proxy's metrics, registered once in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "slipstream_proxy_requests",
            "Answers to production traffic by class of status, those that the proxy itself gave included.",
            ["status"],
            registry=registry,
        )
        self._upstream_errors = Counter(
            "slipstream_proxy_upstream_errors",
            "Exchanges that production did not finish, by cause.",
            ["cause"],
            registry=registry,
        )
        self.caller_gone = Counter(
            "slipstream_proxy_caller_gone",
            "Exchanges whose caller left before the end of its answer.",
            registry=registry,
        )
        self.tap_failures = Counter(
            "slipstream_proxy_tap_failures",
            "Exchanges that capture failed to take.",
            registry=registry,
        )
        self.in_flight = Gauge("slipstream_proxy_in_flight", "Exchanges under way.", registry=registry)
        self.added = Histogram(
            "slipstream_proxy_added_seconds",
            "Time in the sidecar until the answer starts: from the request's last byte received to its last byte sent "
            "on, and from the answer's head received to its head sent on. Without opening connections.",
            buckets=_ADDED,
            registry=registry,
        )
        self.connect = Histogram(
            "slipstream_proxy_connect_seconds",
            "Time to open a new connection to production, TLS included.",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
            registry=registry,
        )
        # Looking a label up costs more than counting: done once.
        self._by_class = [self._requests.labels(f"{hundred}xx") for hundred in range(2, 6)]
        self._by_cause = {cause: self._upstream_errors.labels(cause) for cause in get_args(Cause)}

    def answered(self, status: int) -> None:
        """An answer with this status, 200 to 599, has started."""
        self._by_class[status // 100 - 2].inc()

    def upstream_failed(self, cause: Cause) -> None:
        self._by_cause[cause].inc()
