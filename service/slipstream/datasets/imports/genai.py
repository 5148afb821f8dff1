"""Calls of models as spans by OpenTelemetry's conventions for generative AI (attributes `gen_ai.*`).

What was said stands, by the age of the instrumentation: in `gen_ai.input.messages` and `gen_ai.output.messages` of the
span or of an event; in one event for each message (`gen_ai.user.message`, `gen_ai.choice`); in `gen_ai.prompt` and
`gen_ai.completion`, as JSON or one attribute for each field (`gen_ai.prompt.0.content`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.datasets.imports import chat
from slipstream.datasets.imports.attributes import items, nested, within
from slipstream.datasets.imports.conversation import ImportedCall, Message, Place, Unfit
from slipstream.datasets.imports.openinference import usage_of
from slipstream.datasets.imports.spans import Event, Span

OPERATIONS = ("chat", "text_completion", "generate_content")
"""Values of `gen_ai.operation.name` that are calls of a model which answers."""

EVALUATION = "gen_ai.evaluation.result"

_PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "seed": "seed",
    "stop_sequences": "stop",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Attributes `gen_ai.request.*` and the fields of a request that they are."""

_CHOICE = "gen_ai.choice"


def is_call(span: Span) -> bool:
    """Return whether a span is a call of a model."""
    operation = span.attributes.get("gen_ai.operation.name")
    if operation is not None:
        return operation in OPERATIONS
    return any(name in span.attributes for name in ("gen_ai.prompt", "gen_ai.prompt.0.role", "gen_ai.input.messages"))


def call(span: Span, more: Sequence[Event], place: Place) -> ImportedCall:
    """Return the call that a span is.

    Args:
        more: log records of the span, in order.

    Raises:
        Unfit: it has no messages, or no answer.
    """
    events = [*span.events, *more]
    attributes: dict[str, Any] = {}
    for event in events:
        attributes |= event.attributes
    attributes |= span.attributes
    tree = within(nested(attributes), "gen_ai")
    request: dict[str, Any] = {
        field: value
        for name, field in _PARAMETERS.items()
        if (value := within(tree, "request", name)) is not None
    }  # fmt: skip
    if isinstance(model := within(tree, "request", "model"), str):
        request["model"] = model
    if tools := chat.tools(attributes.get("gen_ai.tool.definitions"), "gen_ai.tool.definitions"):
        request["tools"] = tools
    request["messages"] = _asked(attributes, tree, events)
    reasons = within(tree, "response", "finish_reasons")
    usage = within(tree, "usage")
    asked_tokens = within(usage, "input_tokens") or within(usage, "prompt_tokens")
    answer_tokens = within(usage, "output_tokens") or within(usage, "completion_tokens")
    return ImportedCall(
        name=span.name,
        request=request,
        answer=_answered(attributes, tree, events),
        place=place,
        at=span.start,
        latency=span.latency,
        finish_reason=_reason(reasons),
        usage=usage_of(asked_tokens, answer_tokens),
    )


def _reason(reasons: Any) -> str | None:
    """Return the first choice's reason in the API's words, of which the conventions have one in the singular."""
    reason = reasons[0] if isinstance(reasons, list) and reasons else None
    return ("tool_calls" if reason == "tool_call" else reason) if isinstance(reason, str) else None


def _asked(attributes: Mapping[str, Any], tree: Any, events: Sequence[Event]) -> list[Message]:
    field = "gen_ai.input.messages"
    said = chat.parsed(attributes.get(field))
    if said is None:
        said = _said(events)
    if said is None:
        field = "gen_ai.prompt"
        said = chat.parsed(attributes.get(field)) or [_indexed(each) for each in items(within(tree, "prompt"))]
    if not said:
        raise Unfit("gen_ai.input.messages", "expected the messages of a call, found none: was content captured?")
    read = chat.messages(said, field)
    instructions = chat.parsed(attributes.get("gen_ai.system_instructions"))
    if instructions and read[0].get("role") not in ("system", "developer"):
        parts = instructions if isinstance(instructions, list) else [{"type": "text", "content": str(instructions)}]
        read = [*chat.messages([{"role": "system", "parts": parts}], "gen_ai.system_instructions"), *read]
    return read


def _answered(attributes: Mapping[str, Any], tree: Any, events: Sequence[Event]) -> Message:
    field = "gen_ai.output.messages"
    said = chat.parsed(attributes.get(field))
    if isinstance(said, list):
        said = said[:1]  # choices of one call, of which the user saw the first
    if said is None:
        said = next((_body(event) for event in events if event.name == _CHOICE), None)
    if said is None:
        field = "gen_ai.completion"
        said = attributes.get(field) or next(map(_indexed, items(within(tree, "completion"))), None)
    if not said:
        raise Unfit("gen_ai.output.messages", "expected the answer of a call, found none: was content captured?")
    return chat.answer(said, field)


def _said(events: Sequence[Event]) -> list[dict[str, Any]] | None:
    """Return the messages that have an event each; None if there are none."""
    read = []
    for event in events:
        before, _, after = event.name.partition("gen_ai.")
        role, dot, message = after.partition(".")
        if not before and dot and message == "message":
            read.append({"role": role, **_body(event)})
    return read or None


def _body(event: Event) -> dict[str, Any]:
    """Return the message of an event: its body, or its attributes where an event of a span has no body."""
    said = event.body if isinstance(event.body, Mapping) else event.attributes
    message = dict(said)
    if "id" in message and "tool_call_id" not in message:
        message["tool_call_id"] = message["id"]
    for name in ("message", "tool_calls"):
        if name in message:
            message[name] = chat.parsed(message[name])
    return message


def _indexed(element: Any) -> dict[str, Any]:
    """Return the message whose fields are attributes of their own."""
    message = dict(element) if isinstance(element, Mapping) else {}
    if calls := items(message.get("tool_calls")):
        message["tool_calls"] = calls
    return message
