"""Production's traffic of the last minute, of the counters that the workers write."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from slipstream.capture.outcomes import OutcomeWindow
from slipstream.capture.traffic import TrafficWindow, quantile
from slipstream.metrics import Metrics
from slipstream.proxy.metrics import SharedCounters


async def test_the_figures_are_those_of_the_last_minute() -> None:
    shared, metrics, now = SharedCounters(2), Metrics(CollectorRegistry()), [1000.0]
    workers = [shared.row(0), shared.row(1)]
    workers[0].answered(200)
    window = TrafficWindow(shared, OutcomeWindow(metrics, shared), lambda: now[0])
    before = window.figures()
    assert (before["seconds"], before["requests"], before["requests_per_second"]) == (0.0, 0, None)
    assert before["added_seconds"] == before["first_byte_seconds"] == {"p50": None, "p99": None}

    for worker in workers:
        for _ in range(99):
            worker.answered(200)
            worker.added(120e-6)
        worker.answered(502)
        worker.added(0.02)
        worker.upstream_failed("connect")
        worker.refused("request_body")
        worker.begins()
        worker.connections(3)
    workers[0].serving.ended("control", failed=False, waited=0.3)
    metrics.captured.inc(150)
    metrics.not_captured.labels("status").inc(2)
    workers[1].dropped(at=1.0)
    now[0] += 10.0
    await window.step()
    found = window.figures()
    assert found["by_status"] == {"2xx": 198, "3xx": 0, "4xx": 0, "5xx": 2}
    assert (found["seconds"], found["requests"], found["requests_per_second"]) == (10.0, 200, 20.0)
    assert (found["failed"], found["refused"], found["open"], found["connections"]) == (2, 2, 2, 6)
    assert (found["captured"], found["not_captured"]) == (150, 3)
    assert found["added_seconds"]["p50"] == pytest.approx(125e-6, abs=26e-6)
    assert 100e-6 < found["added_seconds"]["p99"] <= 150e-6
    assert 0.25 < found["first_byte_seconds"]["p50"] <= 0.5

    for _ in range(20):
        now[0] += 5.0
        await window.step()
    quiet = window.figures()
    assert (quiet["seconds"], quiet["requests"], quiet["requests_per_second"], quiet["open"]) == (60.0, 0, 0.0, 2)


def test_a_quantile_is_estimated_within_its_bucket() -> None:
    buckets = [(1.0, 10.0), (2.0, 30.0), (float("inf"), 40.0)]
    assert [quantile(buckets, share) for share in (0.125, 0.5, 0.75, 1.0)] == [0.5, 1.5, 2.0, 2.0]
    assert quantile([(1.0, 0.0), (float("inf"), 0.0)], 0.5) is None
    assert quantile([], 0.5) is None
