"""A message in one form, however the agent wrote it.

Between receiving an answer and sending it back, agents drop null fields, turn text into parts, reformat arguments and
trim blanks. Two messages that mean the same to a model are the same bytes here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slipstream.capture.body import Unreadable, parse_json

_to_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def canonical(message: Mapping[str, Any]) -> bytes:
    """The message's role, text, other content, tool calls and names; all else (refusal, annotations, audio,
    reasoning, unknown fields) is left out, because agents do not send it back reliably."""
    function_call = message.get("function_call")
    form = {
        "role": message.get("role"),
        "content": _content(message.get("content")),
        "tool_calls": _tool_calls(message.get("tool_calls")),
        "function_call": _function(function_call) if function_call else None,
        "tool_call_id": message.get("tool_call_id"),
        "name": message.get("name"),
    }
    return _to_json({key: value for key, value in form.items() if value}).encode("ascii")


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content.strip() if isinstance(content, str) else content
    text = "".join(part["text"] for part in content if _is_text(part)).strip()
    others = [part for part in content if not _is_text(part)]
    return [text, *others] if others else text


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _tool_calls(calls: Any) -> Any:
    if not isinstance(calls, list):
        return calls
    return [
        [call.get("id"), _function(call.get("function") or call.get("custom"))] if isinstance(call, Mapping) else call
        for call in calls
    ]


def _function(function: Any) -> Any:
    if not isinstance(function, Mapping):
        return function
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except Unreadable:
            arguments = arguments.strip()
    return [function.get("name"), arguments or {}]
