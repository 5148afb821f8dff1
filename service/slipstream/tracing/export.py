"""The way of spans to the collector: a bounded queue and a thread of OpenTelemetry's, with what we count and log of it.

What finds the queue full is dropped and counted. A collector that is away costs its spans, and one line of the log in a
while: the library itself logs each failed batch, at times with a traceback.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import structlog
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from slipstream.metrics import Metrics
from slipstream.settings.otel import Otel

_log = structlog.get_logger(__name__)

_QUEUE = 4096
"""Spans that wait: some 8 MB."""

_BATCH = 512
"""Spans of one request to the collector, ..."""

_DELAY_MS = 2000
"""... which is sent after so long with what there is."""

_TELL_AGAIN = 300.0
"""Seconds until it is logged again that spans cannot be exported."""

_LIBRARY = "opentelemetry"
"""The logger above those of the library."""


class CountingExporter(SpanExporter):
    """Exports batches and counts their spans.

    Attributes:
        taken: spans that were taken out of the queue so far.
    """

    def __init__(self, exporter: SpanExporter, metrics: Metrics) -> None:
        self._exporter = exporter
        self._exported = metrics.spans.labels("exported")
        self._failed = metrics.spans.labels("failed")
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)  # by the one thread that exports
        result = self._exporter.export(spans)
        (self._exported if result is SpanExportResult.SUCCESS else self._failed).inc(len(spans))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class BoundedProcessor(BatchSpanProcessor):
    """Queues spans for the exporter's thread. The library's own would drop the oldest of a full queue and not tell."""

    def __init__(self, exporter: CountingExporter, metrics: Metrics) -> None:
        super().__init__(
            exporter,
            max_queue_size=_QUEUE,
            schedule_delay_millis=_DELAY_MS,
            max_export_batch_size=_BATCH,
            export_timeout_millis=0,  # of no effect in the library; the exporter has its own
        )
        self._counting = exporter
        self._dropped = metrics.spans.labels("dropped")
        self._lock = threading.Lock()
        self._queued = 0

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or drop it; called by several threads."""
        with self._lock:
            full = self._queued - self._counting.taken >= _QUEUE
            self._queued += not full
        if full:
            self._dropped.inc()
        else:
            super().on_end(span)


class ExportLog(logging.Handler):
    """Takes the library's log, and says now and then in our own why spans are not exported.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.ERROR)
        self._clock = clock
        self._told_at: float | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first failure, and from then on one in five minutes. Of a traceback nothing is shown."""
        now = self._clock()
        if self._told_at is None or now - self._told_at >= _TELL_AGAIN:
            self._told_at = now
            _log.warning("traces_not_exported", reason=record.getMessage())

    def install(self) -> None:
        """Hear the library, in the place of everybody else."""
        logger = logging.getLogger(_LIBRARY)
        logger.addHandler(self)
        logger.propagate = False

    def remove(self) -> None:
        """Leave the library's log as it was."""
        logger = logging.getLogger(_LIBRARY)
        logger.removeHandler(self)
        logger.propagate = True


def processor_for(settings: Otel, metrics: Metrics) -> BoundedProcessor:
    """Start the thread that exports to the collector of these settings."""
    headers = {name: secret for name, value in settings.headers.items() if (secret := value.get_secret_value())}
    exporter = OTLPSpanExporter(
        settings.traces_url, headers=headers, timeout=settings.timeout, compression=Compression.Gzip
    )
    return BoundedProcessor(CountingExporter(exporter, metrics), metrics)
