"""The meaning of a message, however the agent wrote it.

Between receiving an answer and sending it back, agent frameworks drop null fields, turn text into parts, write JSON
anew, trim blanks, give the speaker a name, and leave out thoughts, refusals and the words beside a tool call. So a
message is compared by what every framework keeps, and what only most of them keep decides between equals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from slipstream.dialects.body import Unreadable, parse_json
from slipstream.dialects.thoughts import THOUGHT_PARTS

_encode = msgspec.json.Encoder(order="sorted").encode
_REST = ("tool_calls", "function_call", "tool_call_id", "name", "refusal")
"""Fields of a message that are read beside its role and content."""
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_NOT_SENT_BACK = THOUGHT_PARTS | {"redacted_thinking", "refusal"}
"""Types of parts of an answer that are not always sent back."""
_THOUGHT = "</think>"
"""The end of a thought in an answer of a server that does not parse it; its beginning may be in the prompt."""
_UNLIKE_JAVASCRIPT = re.compile(r"\d[.eE]|\d{16}")
"""Found in JSON with any number that JavaScript may write in another way."""
_EXACT_IN_A_DOUBLE = 2**53


class Meaning(NamedTuple):
    """A message in a form to compare: equal bytes mean the same.

    Attributes:
        essence: what every framework sends back: role, text, tool calls by name and arguments, other content, and the
            name of a speaker other than the assistant.
        ids: the ids of tool calls, which some frameworks replace; b"" if there are none.
        aside: what some frameworks leave out of an answer: words beside a tool call, refusal, thought in the text; b""
            if there is none.
    """

    essence: bytes
    ids: bytes = b""
    aside: bytes = b""


def meaning(message: Mapping[str, Any]) -> Meaning:
    """The meaning of a message. Fields that are not named in `Meaning` do not count."""
    role, content = message.get("role"), message.get("content")
    if type(content) is str and _THOUGHT not in content and (len(message) == 2 or not any(map(message.get, _REST))):
        return Meaning(_essence(role, content.strip()))  # most messages
    text, others, aside = _content(content)
    calls, ids = _tool_calls(message.get("tool_calls"))
    if function_call := message.get("function_call"):
        calls = [calls, _function(function_call)]
    if role != "assistant":
        name, answered = message.get("name") or None, message.get("tool_call_id") or None
        return Meaning(_essence(role, text, others, calls, name), _bytes_of(answered))
    thought, end, said = text.rpartition(_THOUGHT)
    aside += [thought.strip() + end, message.get("refusal")]
    said = said.strip()
    if calls:
        aside += [said, others]
        said, others = "", None
    return Meaning(_essence(role, said, others, calls), _bytes_of(ids), _bytes_of(aside if any(aside) else None))


def _essence(role: Any, text: str, others: Any = None, calls: Any = None, name: Any = None) -> bytes:
    if text and type(role) is str and role in _ROLES and not (others or calls or name):
        return f"{role}:{text}".encode("utf-8", "surrogatepass")  # no JSON begins like it
    return _bytes([role or None, text or None, others, calls, name])


def _content(content: Any) -> tuple[str, Any, list[Any]]:
    """Its text, its other parts, and those parts that are not always sent back."""
    if isinstance(content, str):
        return content.strip(), None, []
    if not isinstance(content, list):
        return "", content or None, []
    text, others, aside = [], [], []
    for part in content:
        if isinstance(part, Mapping) and part.get("type") in _NOT_SENT_BACK:
            aside.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            text.append(part["text"])
        else:
            others.append(part)
    return "".join(text).strip(), others or None, aside


def _tool_calls(calls: Any) -> tuple[Any, Any]:
    """The tool calls by name and arguments, and their ids."""
    if not isinstance(calls, list):
        return calls or None, None
    named = [
        _function(call.get("function") or call.get("custom")) if isinstance(call, Mapping) else call for call in calls
    ]
    ids = [call.get("id") or None for call in calls if isinstance(call, Mapping)]
    return named or None, ids if any(ids) else None


def _function(function: Any) -> Any:
    if not isinstance(function, Mapping):
        return function
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str):
        text = arguments
        try:
            arguments = parse_json(text)
        except Unreadable:
            arguments = text.strip()
        if not _UNLIKE_JAVASCRIPT.search(text):
            return [function.get("name"), arguments or {}]
    return [function.get("name"), _as_javascript(arguments) or {}]


def _as_javascript(value: Any) -> Any:
    """The JSON value with its numbers as a framework in JavaScript writes them again: 1.0 is 1, all are doubles."""
    if isinstance(value, dict):
        return {key: _as_javascript(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_javascript(item) for item in value]
    if type(value) is float and value.is_integer() and abs(value) <= _EXACT_IN_A_DOUBLE:
        return int(value)
    if type(value) is int and abs(value) > _EXACT_IN_A_DOUBLE:
        try:
            return float(value)
        except OverflowError:  # more than 308 digits
            return value
    return value


def _bytes_of(form: Any) -> bytes:
    return b"" if form is None else _bytes(form)


def _bytes(form: Any) -> bytes:
    try:
        return _encode(form)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(form, sort_keys=True).encode()
