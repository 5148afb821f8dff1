"""A collector that is away, or hangs: spans are dropped and counted, little is logged, and nothing waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import httpx
import pytest
from collector import Collector
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags
from prometheus_client import CollectorRegistry
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess
from structlog.testing import capture_logs

from slipstream.metrics import Metrics
from slipstream.settings.otel import Otel
from slipstream.tracing import export
from slipstream.tracing.catalogue import Attribute, SpanName
from slipstream.tracing.export import BoundedProcessor, CountingExporter, ExportLog
from slipstream.tracing.otlp import OtlpTracer
from slipstream.tracing.tracer import Past


class Stuck(SpanExporter):
    """Exports nothing until it may."""

    def __init__(self) -> None:
        self.may = Event()
        self.result = SpanExportResult.SUCCESS

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.may.wait(20)
        return self.result

    def shutdown(self) -> None:
        self.may.set()


def spans(metrics: Metrics, outcome: str) -> float | None:
    return metrics.registry.get_sample_value("slipstream_spans_total", {"outcome": outcome})


async def test_what_a_full_queue_cannot_take_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_QUEUE", 20)
    monkeypatch.setattr(export, "_BATCH", 5)
    metrics, stuck = Metrics(CollectorRegistry()), Stuck()
    processor = BoundedProcessor(CountingExporter(stuck, metrics), metrics)
    span = ReadableSpan("chat", SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)))
    for _ in range(100):
        processor.on_end(span)
    dropped = spans(metrics, "dropped")
    assert dropped is not None
    assert 75 <= dropped <= 80, "but for those that the exporter has taken"
    stuck.may.set()
    await until(lambda: spans(metrics, "exported") == 100 - dropped)
    stuck.result = SpanExportResult.FAILURE
    for _ in range(5):
        processor.on_end(span)
    await until(lambda: spans(metrics, "failed") == 5)
    processor.shutdown()


def test_the_log_says_now_and_then_why_nothing_is_exported_without_a_traceback() -> None:
    now = 0.0
    log = ExportLog(lambda: now)
    log.install()
    try:
        with capture_logs() as told:
            for now in (0.0, 1.0, 299.0, 301.0):  # noqa: B007 - the clock's
                logger = logging.getLogger("opentelemetry.exporter.any")
                logger.warning("retrying")
                try:
                    raise OSError("away")
                except OSError:
                    logger.exception("Failed to export %s", "spans")
    finally:
        log.remove()
    assert told == [{"event": "traces_not_exported", "reason": "Failed to export spans", "log_level": "warning"}] * 2


@pytest.mark.slow
async def test_long_and_odd_values_arrive_made_fit() -> None:
    collector, metrics = Collector(), Metrics(CollectorRegistry())
    async with serving(collector.app()) as url:
        tracer = OtlpTracer(Otel.model_validate({"endpoint": url}), metrics)
        for value in ("x" * 10_000, "\ud800", "\0"):
            attributes = {
                Attribute.REQUEST_MODEL: value, Attribute.FINISH_REASONS: [value] * 99, Attribute.INPUT_TOKENS: 2**63,
            }  # fmt: skip
            tracer.past(Past(SpanName.CHAT, 1.0, 2.0, attributes, value, error=value))
        await until(lambda: len(collector.spans) == 3)
        await tracer.aclose()
    assert [one.attributes["gen_ai.request.model"] for one in collector.spans] == ["x" * 256, "?", "\0"]
    for one in collector.spans:
        assert len(one.attributes["gen_ai.response.finish_reasons"]) == 16
        assert "gen_ai.usage.input_tokens" not in one.attributes
    assert len(collector.spans[0].name) < 300
    assert spans(metrics, "exported") == 3


@pytest.mark.slow
async def test_a_collector_that_is_away_costs_its_spans_and_one_line_of_the_log() -> None:
    metrics = Metrics(CollectorRegistry())
    tracer = OtlpTracer(Otel.model_validate({"endpoint": "http://127.0.0.1:9", "timeout": "100ms"}), metrics)
    with capture_logs() as told:
        for _ in range(3):
            tracer.past(Past(SpanName.COMMIT, 1.0, 2.0, {}))
        await until(lambda: spans(metrics, "failed") == 3)
        await tracer.aclose()
    assert [one["event"] for one in told] == ["traces_not_exported"]


@pytest.mark.slow
async def test_a_collector_that_hangs_holds_up_neither_production_nor_the_end(tmp_path: Path) -> None:
    asked = 0
    over = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        if await reader.read(1):
            asked += 1
        await over.wait()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    collector = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{collector.sockets[0].getsockname()[1]}"
    async with serving(production_app()) as production, serving(ScriptedExplorer().app()) as explorer:
        sidecar = SidecarProcess(
            tmp_path, production, explorer, otel={"endpoint": url, "timeout": "30s"}, log={"level": "warning"}
        )
        sidecar.log = tmp_path / "log"
        await sidecar.start()
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as client:
            body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
            for _ in range(50):
                assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            await until(lambda: asked)
        began = time.monotonic()
        sidecar.send(signal.SIGTERM)
        await sidecar.ended()
        assert time.monotonic() - began < 10
    over.set()
    collector.close()
    await collector.wait_closed()
    log = sidecar.log.read_text()
    assert "Traceback" not in log
    assert "process_killed" not in log
    assert log.count("traces_not_exported") <= 2, log
