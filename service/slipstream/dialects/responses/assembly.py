"""A streamed response put together again from its server-sent events.

The last event holds the whole response, so as a rule nothing else is read. Some servers leave its output empty, or do
not send it; what they streamed is put together from all events then. Written here because what exists does not fit:
the openai SDK's accumulator raises for streams of other servers.
"""

from __future__ import annotations

from typing import Any

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.events import events
from slipstream.dialects.responses.output_items import OutputItems
from slipstream.dialects.responses.vocabulary import kind_of
from slipstream.jsontext import values
from slipstream.memory.parsing import MAX_VALUES

_MAX_VALUES_OF_EVENTS = 4 * MAX_VALUES
"""Values of all events of a stream. Of an answer put together from deltas, most say again what others said."""

_ENDS = frozenset({"response.completed", "response.incomplete", "response.cancelled"})
_HEADS = frozenset({"response.created", "response.queued", "response.in_progress"})
_ERRORS = frozenset({"error", "response.failed", "response.error"})


def assemble(body: bytes) -> dict[str, Any]:
    """The response that a whole stream stands for.

    Raises:
        Unreadable: `too_many_values`, `error_in_stream`, `truncated_stream`, `not_json`, or `no_answer` for events of
            another form.
    """
    if values(body) > _MAX_VALUES_OF_EVENTS:
        raise Unreadable("too_many_values")
    return _last_event(body) or _all_events(body)


def _last_event(body: bytes) -> dict[str, Any] | None:
    """The response that the last event holds, if it lacks nothing."""
    end = body.rfind(b"\ndata:")
    if end >= 0 and body[end + 6 :].strip() == b"[DONE]":
        end = body.rfind(b"\ndata:", 0, end)
    for _, data in events(body[end + 1 :]):
        if b"response.completed" not in data and b"response.incomplete" not in data:
            return None
        try:
            event = parse_json(data)
        except Unreadable:  # a part of an event, as some servers write its JSON in many lines
            return None
        if kind_of(event) in _ENDS and isinstance(event.get("response"), dict):
            response: dict[str, Any] = event["response"]
            return None if _lacks(response.get("output")) else response
        return None
    return None


def _lacks(output: Any) -> bool:
    """Return whether it has no items, or a message without its content."""
    return not (isinstance(output, list) and output) or any(
        kind_of(item) == "message" and not item.get("content") for item in output
    )


def _all_events(body: bytes) -> dict[str, Any]:
    head: dict[str, Any] = {}
    end: dict[str, Any] | None = None
    items = OutputItems()
    done = False
    for name, data in events(body):
        if data.strip() == b"[DONE]":
            done = True
            break
        event = parse_json(data)
        if not isinstance(event, dict):
            raise Unreadable("no_answer")
        kind = event["type"] if isinstance(event.get("type"), str) else name
        response = event.get("response")
        if kind in _ERRORS or (event.get("error") and not kind.startswith("response.")):
            raise Unreadable("error_in_stream")
        if kind in _HEADS and isinstance(response, dict):
            head = response
        elif kind in _ENDS and isinstance(response, dict):
            end = response
        else:
            items.add(kind, event)
    if end is None and not (done and items.all_done):
        raise Unreadable("truncated_stream")
    whole = head | (end or {"status": "completed"})
    if _lacks(whole.get("output")) and not _lacks(items.in_order):
        whole["output"] = items.in_order
    return whole
