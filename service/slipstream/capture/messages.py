"""A message in one form, however the agent wrote it.

Between receiving an answer and sending it back, agents drop null fields, turn text into parts, reformat arguments and
trim blanks. Two messages that mean the same to a model are the same bytes here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from slipstream.capture.body import Unreadable, parse_json

_encode = msgspec.json.Encoder(order="sorted").encode
_REST = ("tool_calls", "function_call", "tool_call_id", "name")
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def canonical(message: Mapping[str, Any]) -> bytes:
    """The message's role, text, other content, tool calls and names; all else (refusal, annotations, audio,
    reasoning, unknown fields) is left out, because agents do not send it back reliably."""
    role, content = message.get("role"), message.get("content")
    content = content.strip() if type(content) is str else _content(content)
    is_text = content and type(content) is str and type(role) is str and role in _ROLES
    if is_text and (len(message) == 2 or not any(map(message.get, _REST))):
        return f"{role}:{content}".encode("utf-8", "surrogatepass")  # most messages, and no JSON begins like it
    function_call = message.get("function_call")
    form = [
        role or None,
        content or None,
        _tool_calls(message.get("tool_calls")) or None,
        _function(function_call) if function_call else None,
        message.get("tool_call_id") or None,
        message.get("name") or None,
    ]
    try:
        return _encode(form)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(form, sort_keys=True).encode()


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
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
