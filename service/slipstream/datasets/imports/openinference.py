"""Calls of models as spans by OpenInference's conventions, which Phoenix stores (attributes `llm.*`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.datasets.imports import chat
from slipstream.datasets.imports.attributes import items, nested, within
from slipstream.datasets.imports.conversation import ImportedCall, Message, Place, Unfit, found
from slipstream.datasets.imports.spans import Span

CALL = "LLM"
"""Kind of a span that is a call of a model."""

_IN_REQUEST = ("messages", "tools", "input")
"""Invocation parameters that say again what other attributes say."""


def call(span: Span, place: Place) -> ImportedCall:
    """Return the call that a span is.

    Raises:
        Unfit: it has no messages, or no answer.
    """
    llm = within(nested(span.attributes), "llm")
    asked = chat.parsed(span.attributes.get("input.value"))
    parameters = chat.parsed(within(llm, "invocation_parameters"))
    request = (
        {name: value for name, value in parameters.items() if name not in _IN_REQUEST}
        if isinstance(parameters, Mapping)
        else {}
    )
    model = request.get("model") or within(llm, "request", "model_name") or within(llm, "model_name")
    if isinstance(model, str):
        request["model"] = model
    schemas = [within(each, "tool", "json_schema") for each in items(within(llm, "tools"))]
    if tools := chat.tools(schemas or within(asked, "tools"), "llm.tools"):
        request["tools"] = tools
    request["messages"] = _messages(items(within(llm, "input_messages")), asked)
    usage = within(llm, "token_count")
    counts = within(usage, "prompt"), within(usage, "completion")
    reason = within(llm, "finish_reason")
    return ImportedCall(
        name=span.name,
        request=request,
        answer=_answer(items(within(llm, "output_messages")), span.attributes.get("output.value")),
        place=place,
        at=span.start,
        latency=span.latency,
        finish_reason=reason if isinstance(reason, str) else None,
        usage=usage_of(*counts),
    )


def usage_of(asked: Any, answered: Any) -> dict[str, int] | None:
    """Return counts of tokens in the API's words; None unless both are known."""
    whole = [int(count) for count in (asked, answered) if isinstance(count, int | float) and 0 <= count < 2**53]
    if len(whole) < 2:
        return None
    return {"prompt_tokens": whole[0], "completion_tokens": whole[1], "total_tokens": sum(whole)}


def _messages(listed: list[Any], asked: Any) -> list[Message]:
    if listed:
        return [chat.message(_message(each), f"llm.input_messages.{place}") for place, each in enumerate(listed)]
    if asked is None:
        raise Unfit("llm.input_messages", "expected the messages of a call, found none, nor input.value")
    return chat.messages(
        asked["messages"] if isinstance(asked, Mapping) and "messages" in asked else asked, "input.value"
    )


def _answer(listed: list[Any], answered: Any) -> Message:
    if listed:
        return chat.answer(_message(listed[0]), "llm.output_messages.0")
    if answered is None:
        raise Unfit("llm.output_messages", "expected the answer of a call, found none, nor output.value")
    return chat.answer(answered, "output.value")


def _message(element: Any) -> dict[str, Any]:
    """Return a message in the API's form, as far as it is one; `chat` checks it."""
    message = within(element, "message")
    if not isinstance(message, Mapping):
        raise Unfit("llm.input_messages", f"expected messages with message.role, found {found(element)}")
    read: dict[str, Any] = {"role": message.get("role"), "content": message.get("content")}
    contents = [within(each, "message_content") for each in items(message.get("contents"))]
    if contents and not read["content"]:
        read["content"] = [_part(part) for part in contents]
    calls = [within(each, "tool_call") for each in items(message.get("tool_calls"))]
    if calls:
        read["tool_calls"] = [
            {
                "id": within(each, "id"),
                "function": {
                    "name": within(each, "function", "name"),
                    "arguments": within(each, "function", "arguments"),
                },
            }
            for each in calls
        ]
    elif message.get("function_call_name"):
        arguments = message.get("function_call_arguments_json") or "{}"
        read["function_call"] = {"name": message["function_call_name"], "arguments": arguments}
    read |= {name: message[name] for name in ("name", "tool_call_id") if message.get(name)}
    return read


def _part(part: Any) -> dict[str, Any]:
    kind = within(part, "type")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": within(part, "image", "image", "url")}}
    return {"type": kind, "text": within(part, "text")} if kind == "text" else dict(part or {})
