"""One spelling of a message, so that equal conversations are equal, and each format can be read back exactly.

It is the one that chat templates see when the model is served: `developer` is `system`, text parts are joined by
newlines, arguments that are a JSON object have the spelling of `json.dumps`, and keys without a value are left out, as
those that belong to the answer's delivery and not to the conversation (`annotations`, `audio`, a provider's own).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.errors import SlipstreamError
from slipstream.jsontext import from_json

MAX_DEPTH = 60
"""Levels of a tool's signature or a call's arguments. Readers of JSON give up at some depth (pandas' at 1,024, Python's
at about 1,000), and then lose the whole file; nothing real is as deep as this."""

_ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_TEXTS = ("refusal", "tool_call_id", "name")
_REASONING = ("reasoning_content", "reasoning")  # the older and the newer name of the same, in the answers of servers


class Unsayable(SlipstreamError):
    """A row that a format cannot say.

    Args:
        reason: a short name for it, without anything of the conversation, to count by.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def normal_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of OpenAI's chat completions API in normal form.

    An assistant that only calls tools has no `content`; any other message has one: a text, or the parts of one that
    holds more than text.

    Raises:
        Unsayable: it is no such message, or has a part that no format can say.
    """
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise Unsayable("unknown_role")
    role = _ROLES[role]
    if message.get("function_call"):
        raise Unsayable("function_call")
    said: dict[str, Any] = {"role": role}
    calls = [_call(call) for call in _mappings(message.get("tool_calls") or [])]
    content = _content(message.get("content"))
    if content or not calls:
        said["content"] = content
    if calls:
        said["tool_calls"] = calls
    for key in _TEXTS:
        if message.get(key):
            said[key] = normal_text(message[key])
    for key in _REASONING:
        if message.get(key) and role == "assistant":
            said["reasoning_content"] = normal_text(message[key])
            break
    return said


def normal_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return signatures of functions.

    Raises:
        Unsayable: there is a tool of another type, or one that cannot be written.
    """
    for tool in _mappings(tools):
        if tool.get("type") != "function" or not isinstance(tool.get("function"), Mapping):
            raise Unsayable("tool_not_a_function")
        if not isinstance(tool["function"].get("name"), str):
            raise Unsayable("tool_without_a_name")
        if depth(tool) > MAX_DEPTH:
            raise Unsayable("nested_too_deep")
        normal_text(json.dumps(tool, ensure_ascii=False))
    return [dict(tool) for tool in tools]


def normal_text(text: Any) -> str:
    """Return a text as it is.

    Raises:
        Unsayable: it is none, or has half of a surrogate pair, by which readers of JSON lose the whole file.
    """
    if not isinstance(text, str):
        raise Unsayable("not_as_in_the_api")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unsayable("half_of_a_surrogate_pair") from None
    return text


def arguments_of(text: str) -> Any:
    """Return the arguments of a call: an object, or the text itself if it is none. A model may have written it so."""
    try:
        value, _ = from_json(text or "{}")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) and depth(value) <= MAX_DEPTH else text


def spelled(arguments: Any) -> str:
    """Return arguments as OpenAI's API has them, a text; what `arguments_of` reads."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def depth(value: Any) -> int:
    """Count the levels of a JSON value, without recursion."""
    levels, level = 0, [value]
    while level:
        levels += 1
        level = [
            item
            for outer in level
            if isinstance(outer, Mapping | list)
            for item in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
    return levels


def _content(content: Any) -> Any:
    if content is None:
        return ""
    if isinstance(content, str):
        return normal_text(content)
    parts = _mappings(content)
    if all(part.get("type") == "text" for part in parts):
        return "\n".join(normal_text(part.get("text", "")) for part in parts)
    if depth(parts) > MAX_DEPTH:
        raise Unsayable("nested_too_deep")
    normal_text(json.dumps(parts, ensure_ascii=False))
    return parts


def _mappings(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise Unsayable("not_as_in_the_api")
    return [dict(item) for item in value]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise Unsayable("tool_call_not_of_a_function")
    if not isinstance(function.get("name"), str):
        raise Unsayable("tool_call_without_a_name")
    arguments = normal_text(spelled(arguments_of(spelled(function.get("arguments") or ""))))
    said: dict[str, Any] = {"id": normal_text(call["id"])} if call.get("id") else {}
    return {**said, "type": "function", "function": {"name": normal_text(function["name"]), "arguments": arguments}}
