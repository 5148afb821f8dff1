"""Spans and log records in the forms in which files hold them.

| form | written by |
|---|---|
| a batch: `{"resourceSpans": [...]}`, `{"resourceLogs": [...]}`, or an element of these lists | OTLP/JSON, the collector's file exporter |
| a span with `context` and `attributes` | `ReadableSpan.to_json` of OpenTelemetry's SDK, `GET /v1/projects/{project}/spans` of Phoenix |
| a row with `context.span_id` and `attributes.llm.input_messages` | Phoenix's data frame of spans, `to_json(orient="records", lines=True)` |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipstream.datasets.imports import chat
from slipstream.datasets.imports.attributes import within
from slipstream.datasets.imports.conversation import Unfit, found
from slipstream.datasets.imports.times import seconds

_DEEPEST = 40
"""Levels of a value in OTLP, each of which is three of JSON."""

_COLUMNS = "attributes."


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a span, or a log record that names one.

    Attributes:
        span: id of the span; "" for none.
        body: None where there is none.
    """

    name: str
    span: str
    attributes: Mapping[str, Any]
    body: Any = None


@dataclass(frozen=True, slots=True)
class Span:
    """A span. Attributes have their flat names.

    Attributes:
        kind: of OpenInference, such as `LLM`; "" if nothing says it.
        start, end: Unix seconds.
    """

    trace: str
    name: str
    attributes: Mapping[str, Any]
    kind: str = ""
    start: float | None = None
    end: float | None = None
    events: tuple[Event, ...] = ()

    @property
    def latency(self) -> float:
        """Return its seconds; 0 where one of the two times is missing."""
        return 0.0 if self.start is None or self.end is None else max(0.0, self.end - self.start)


def spans(record: Mapping[str, Any]) -> list[Span]:
    """Return the spans of a record.

    Raises:
        Unfit: it is none of the forms, or a span lacks its ids.
    """
    if isinstance(record.get("resourceSpans"), list):
        return [span for each in record["resourceSpans"] if isinstance(each, Mapping) for span in spans(each)]
    if isinstance(record.get("scopeSpans"), list):
        listed = [span for scope in record["scopeSpans"] for span in _list(scope, "spans")]
        return [_of_otlp(span) for span in listed if isinstance(span, Mapping)]
    if "resourceLogs" in record or "scopeLogs" in record:
        return []
    if "spanId" in record:
        return [_of_otlp(record)]
    return [_of_object(record)]


def log_records(record: Mapping[str, Any]) -> list[Event]:
    """Return the log records of a record of a file that name a span."""
    if isinstance(record.get("resourceLogs"), list):
        return [event for each in record["resourceLogs"] if isinstance(each, Mapping) for event in log_records(each)]
    listed = [each for scope in _list(record, "scopeLogs") for each in _list(scope, "logRecords")]
    return [_log_record(each) for each in listed if isinstance(each, Mapping)]


def _of_otlp(span: Mapping[str, Any]) -> Span:
    attributes = _key_values(span.get("attributes"))
    name, events = _id(span.get("spanId"), "spanId"), _list(span, "events")
    return Span(
        trace=_id(span.get("traceId"), "traceId"),
        name=name,
        attributes=attributes,
        kind=str(attributes.get("openinference.span.kind") or ""),
        start=seconds(span.get("startTimeUnixNano"), "startTimeUnixNano"),
        end=seconds(span.get("endTimeUnixNano"), "endTimeUnixNano"),
        events=tuple(
            Event(str(event.get("name")), name, _key_values(event.get("attributes")))
            for event in events
            if isinstance(event, Mapping)
        ),
    )


def _of_object(span: Mapping[str, Any]) -> Span:
    context = span.get("context")
    if not isinstance(context, Mapping):
        context = {name: span.get(f"context.{name}") for name in ("trace_id", "span_id")}
    given = chat.parsed(span.get("attributes"))
    attributes = dict(given) if isinstance(given, Mapping) else {}
    attributes |= {
        name.removeprefix(_COLUMNS): value
        for name, value in span.items()
        if name.startswith(_COLUMNS) and value is not None
    }
    events = chat.parsed(span.get("events"))
    name = _id(context.get("span_id"), "context.span_id")
    return Span(
        trace=_id(context.get("trace_id"), "context.trace_id"),
        name=name,
        attributes=attributes,
        kind=str(attributes.get("openinference.span.kind") or span.get("span_kind") or ""),
        start=seconds(span.get("start_time"), "start_time"),
        end=seconds(span.get("end_time"), "end_time"),
        events=tuple(
            Event(str(event.get("name")), name, event.get("attributes") or {})
            for event in (events if isinstance(events, list) else ())
            if isinstance(event, Mapping) and isinstance(event.get("attributes") or {}, Mapping)
        ),
    )


def _log_record(record: Mapping[str, Any]) -> Event:
    attributes = _key_values(record.get("attributes"))
    name = record.get("eventName") or attributes.get("event.name") or ""
    span = record.get("spanId")
    return Event(str(name), span if isinstance(span, str) else "", attributes, _value(record.get("body")))


def _key_values(listed: Any) -> dict[str, Any]:
    """Return the attributes of OTLP: a list of `{"key": ..., "value": {"stringValue": ...}}`."""
    pairs = listed if isinstance(listed, list) else ()
    return {
        pair["key"]: _value(pair.get("value"))
        for pair in pairs
        if isinstance(pair, Mapping) and isinstance(pair.get("key"), str)
    }


def _value(value: Any, depth: int = 0) -> Any:
    if not isinstance(value, Mapping) or len(value) != 1 or depth > _DEEPEST:
        return None
    [(kind, inner)] = value.items()
    if kind == "intValue":
        return int(inner) if isinstance(inner, str) and inner.lstrip("-").isdecimal() and len(inner) < 21 else inner
    if kind == "arrayValue":
        return [_value(each, depth + 1) for each in _list(inner, "values")]
    if kind == "kvlistValue":
        pairs = [pair for pair in _list(inner, "values") if isinstance(pair, Mapping)]
        return {str(pair.get("key")): _value(pair.get("value"), depth + 1) for pair in pairs}
    return inner


def _list(node: Any, name: str) -> list[Any]:
    found_list = within(node, name)
    return found_list if isinstance(found_list, list) else []


def _id(value: Any, at: str) -> str:
    """Return an id of a trace or a span, without the `0x` that the SDK writes."""
    if not isinstance(value, str) or not value:
        raise Unfit(at, f"expected the id of a trace or a span, found {found(value)}")
    return value.removeprefix("0x")
