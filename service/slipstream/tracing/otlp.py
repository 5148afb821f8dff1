"""The tracer by OpenTelemetry's own library. Nothing else of ours imports it, and this only where traces are on."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue
from uuid_utils import uuid7

from slipstream import __version__, shutdown
from slipstream.metrics import Metrics
from slipstream.settings.otel import Otel
from slipstream.tracing.catalogue import Attribute, Attributes, SpanName, Value
from slipstream.tracing.context import TraceParent
from slipstream.tracing.export import ExportLog, processor_for
from slipstream.tracing.tracer import Past, Span

_LONGEST_VALUE = 256
"""Characters of a value: callers choose model names and ids."""

_MOST_VALUES = 16
"""Values of a list."""

_LARGEST = 2**63 - 1
"""Largest integer of the protocol: a larger one would cost the whole batch."""

_REMEMBERED = 20_000
"""Spans that later ones can follow: some 6 MB."""

_LIMITS = SpanLimits(
    max_attributes=64,
    max_events=8,
    max_links=8,
    max_event_attributes=8,
    max_link_attributes=8,
    max_attribute_length=_LONGEST_VALUE,
    max_span_attribute_length=_LONGEST_VALUE,
)
"""All of them, so that no variable of the environment sets one."""


class OtlpTracer:
    """A `tracer.Tracer` that exports to a collector.

    It starts a thread.
    """

    on = True

    def __init__(self, settings: Otel, metrics: Metrics) -> None:
        self._log = ExportLog()
        self._log.install()
        resource = Resource.create(
            {
                "service.name": settings.service_name,
                "service.version": __version__,
                "service.instance.id": str(uuid7()),
            }
        )
        self._processor = processor_for(settings, metrics)
        self._deciding = self._tracer(resource, ParentBased(TraceIdRatioBased(settings.ratio)))
        self._decided = self._tracer(resource, ParentBased(ALWAYS_ON))
        self._known: OrderedDict[str, SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def _tracer(self, resource: Resource, sampler: Sampler) -> trace.Tracer:
        provider = TracerProvider(sampler, resource, shutdown_on_exit=False, span_limits=_LIMITS)
        provider.add_span_processor(self._processor)
        return provider.get_tracer("slipstream", __version__)

    @contextmanager
    def span(
        self,
        name: SpanName,
        attributes: Attributes,
        *,
        model: str | None = None,
        parent: TraceParent | None = None,
        follows: str | None = None,
    ) -> Iterator[Span]:
        """Open a span, as in `Tracer.span`."""
        links = self._links(follows)
        tracer = self._decided if links else self._deciding
        with tracer.start_as_current_span(
            _title(name, model),
            None if parent is None else _context(parent),
            _kind(name),
            _clean(attributes),
            links,
            record_exception=False,  # a traceback quotes
            set_status_on_exception=False,
        ) as made:
            span = _OtelSpan(made, self._remember)
            try:
                yield span
            except BaseException as error:
                span.fail(type(error).__name__)
                raise

    def current(self) -> Span:
        """Return the span within which this is called."""
        return _OtelSpan(trace.get_current_span(), self._remember)

    def past(self, past: Past) -> None:
        """Make a span of something that is over, as a trace of its own."""
        self._make(self._deciding, past, Context())

    def call(self, past: Past, parent: TraceParent | None, *, key: str | None) -> None:
        """Make the span of a call that a worker has decided to trace."""
        made = self._make(self._decided, past, Context() if parent is None else _context(parent))
        if key is not None:
            made.remember(key)

    async def aclose(self) -> None:
        """Export what waits. A collector that hangs is left to a thread that nobody waits for."""
        ending = threading.Thread(target=self._processor.shutdown, name="traces end", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, shutdown.TRACES)
        self._log.remove()

    def _make(self, tracer: trace.Tracer, past: Past, context: Context) -> Span:
        made = tracer.start_span(
            _title(past.name, past.model),
            context,
            _kind(past.name),
            _clean(past.attributes),
            start_time=_nanoseconds(past.started_at),
        )
        span = _OtelSpan(made, self._remember)
        if past.error is not None:
            span.fail(past.error)
        made.end(_nanoseconds(past.ended_at))
        return span

    def _remember(self, key: str, context: SpanContext) -> None:
        if not context.trace_flags.sampled:
            return
        with self._lock:
            self._known[key] = context
            self._known.move_to_end(key)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _links(self, key: str | None) -> Sequence[Link]:
        if key is None:
            return ()
        with self._lock:
            known = self._known.get(key)
        return () if known is None else (Link(known),)


class _OtelSpan:
    """A `tracer.Span`."""

    def __init__(self, span: trace.Span, remember: Callable[[str, SpanContext], None]) -> None:
        self._span = span
        self._remember = remember

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(_clean(attributes))

    def fail(self, error: str) -> None:
        self._span.set_attribute(Attribute.ERROR.value, _text(error))
        self._span.set_status(StatusCode.ERROR)

    def remember(self, key: str) -> None:
        self._remember(key, self._span.get_span_context())


def _title(name: SpanName, model: str | None) -> str:
    return name if not model else f"{name} {_text(model)}"


def _kind(name: SpanName) -> SpanKind:
    """The kind of a span: of a call that leaves this program, or of work within it."""
    return SpanKind.CLIENT if name in (SpanName.CHAT, SpanName.FEEDBACK) else SpanKind.INTERNAL


def _context(parent: TraceParent) -> Context:
    flags = TraceFlags(TraceFlags.SAMPLED if parent.sampled else TraceFlags.DEFAULT)
    context = SpanContext(int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(context), Context())


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _clean(attributes: Attributes) -> dict[str, AttributeValue]:
    return {
        name.value: _plain(value)
        for name, value in attributes.items()
        if value is not None and not (isinstance(value, int) and abs(value) > _LARGEST)
    }


def _plain(value: Value) -> AttributeValue:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Sequence):
        return [_text(one) for one in value[:_MOST_VALUES]]
    return value


def _text(value: str) -> str:
    """A text as protobuf can hold it: it refuses a whole batch for half of a surrogate pair."""
    return value[:_LONGEST_VALUE].encode("utf-8", "replace").decode()
