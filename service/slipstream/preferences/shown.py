"""A pair as its annotator sees it: the request and two answers, and nothing that names either side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstream.jsontext import from_json
from slipstream.trajectory import Message, answer_message


def blind(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The message of an answer without what tells who gave it: ids of tool calls, and fields of a server's own."""
    message = answer_message(answer)
    shown: dict[str, Any] = {"role": "assistant", "content": message.get("content")}
    if calls := message.get("tool_calls"):
        shown["tool_calls"] = [{"type": "function", "function": _function(call)} for call in calls]
    return shown


def say_the_same(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether two answers are the same for their reader: whitespace within the arguments of tools is none of his
    business."""
    return bool(_compared(blind(left)) == _compared(blind(right)))


def conversational(answer: Mapping[str, Any]) -> Message:
    """The message of an answer with the fields that training reads."""
    message = answer_message(answer)
    kept = {name: message[name] for name in ("content", "tool_calls") if name in message}
    return {"role": "assistant", "content": None, **kept}


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    return {"name": function.get("name"), "arguments": function.get("arguments")}


def _compared(message: Mapping[str, Any]) -> Any:
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return (message["content"] or "", [(call["name"], _arguments(call["arguments"])) for call in calls])


def _arguments(text: Any) -> Any:
    try:
        return from_json(text.encode())[0]
    except (AttributeError, ValueError):
        return text
