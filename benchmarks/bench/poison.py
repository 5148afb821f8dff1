"""Exchanges that are made to end the process that reads them: by memory, by time, or by depth. Each is a chat that a
production model could carry.

A request names its kind in its last message, `poison KIND NUMBER`; a model that reads that with `said_by` answers as
the kind wants it to. What is large is in fields that go on to the policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_BODY = 8 * 1024**2 - 4096
"""Bytes: just below `capture.max_body`."""
MOST_VALUES = 499_000
"""Values: just below what is read of a body."""

_ENDLESS = "^(a+)+$"
_LONG_KEY = "a" * 60 + "b"
_TOOL_CALLS = 2_500
_TOKENS, _ALTERNATIVES = 2_000, 20
"""With five values for each alternative: a half of `MOST_VALUES`."""
_DOUBLINGS = 40
_DEEP = b'{"a":' * 45 + b"1" + b"}" * 45 + b","
"""As deep as is read."""
_WORDS = re.compile(rb"poison (\w+) (\d+)")

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Poison:
    """One kind.

    Attributes:
        what: in words, for a table.
        request: builds the JSON of a request out of its fields as JSON, without the last bracket.
        answer: fields of the answers' one choice, of production and of the policy.
    """

    what: str
    request: Callable[[bytes], bytes]
    answer: Callable[[], Fields]


def request(kind: str, number: int) -> bytes:
    """The body of a request of this kind, as JSON."""
    fields = {"model": "m", "messages": [{"role": "user", "content": f"poison {kind} {number}"}]}
    return KINDS[kind].request(json.dumps(fields).encode()[:-1])


def said_by(body: bytes) -> tuple[str, Fields] | None:
    """The answer of a production model to a request with this body: its text, and the fields of its choice. None for a
    request that is no poison."""
    asked = _WORDS.search(body)
    return None if asked is None else (asked[0].decode(), KINDS[asked[1].decode()].answer())


def completion(msg_id: str, words: str, fields: Fields) -> Fields:
    """A whole answer that says what `said_by` wants."""
    choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {"id": msg_id, "object": "chat.completion", "created": 1, "model": "m", "choices": [choice | fields]} | {
        "usage": usage
    }


def _repeated(piece: bytes) -> Callable[[bytes], bytes]:
    """A field with as many of this piece as a body may have bytes."""
    return lambda head: (
        head + b', "chat_template_kwargs": {"x": [' + piece * ((MOST_BODY - len(head)) // len(piece)) + b"0]}}"
    )


def _many(piece: bytes) -> Callable[[bytes], bytes]:
    """A field with as many of this piece as are still read."""
    return lambda head: (
        head + b', "chat_template_kwargs": {"x": [' + piece * (MOST_VALUES // sum(map(piece.count, b"[{,"))) + b"0]}}"
    )


def _also(**fields: Any) -> Callable[[bytes], bytes]:
    return lambda head: head + (b", " + json.dumps(fields).encode()[1:] if fields else b"}")


def _schema(schema: Fields) -> Callable[[bytes], bytes]:
    wanted = {"type": "json_schema", "json_schema": {"name": "poison", "schema": schema}}
    return _also(response_format=wanted)


def _nested(head: bytes) -> bytes:
    depth = (MOST_BODY - len(head)) // 8
    return head + b', "chat_template_kwargs": ' + b"[" * depth + b"]" * depth + b"}"


def _texts(head: bytes) -> bytes:
    """A text of which Python keeps each character in four bytes."""
    return head + b', "chat_template_kwargs": {"x": "' + b"a" * (MOST_BODY - len(head) - 64) + '🙂"}}'.encode()


def _doubling() -> Fields:
    """A schema that is twice the one behind it, and so on."""
    levels = {
        f"a{at}": {"allOf": [{"$ref": f"#/$defs/a{at + 1}"}, {"$ref": f"#/$defs/a{at + 1}"}]}
        for at in range(_DOUBLINGS)
    }
    return {"$defs": levels | {f"a{_DOUBLINGS}": {"type": "object"}}, "$ref": "#/$defs/a0"}


def _messages(head: bytes) -> bytes:
    """A conversation of as many messages as are still read, of which most say nothing."""
    start = head.index(b"[") + 1
    piece = b'{"role":"assistant"},'
    return head[:start] + piece * (MOST_VALUES // 2 - 10) + head[start:] + b"}"


def _plain() -> Fields:
    return {}


def _long_key() -> Fields:
    return {"message": {"role": "assistant", "content": json.dumps({_LONG_KEY: 1})}}


def _tool_calls() -> Fields:
    """Calls that differ in their arguments: each is compared with each of another answer."""
    calls = [
        {
            "id": f"c{at}",
            "type": "function",
            "function": {"name": "f", "arguments": json.dumps({"a": at, "b": "x" * 20})},
        }
        for at in range(_TOOL_CALLS)
    ]
    return {"message": {"role": "assistant", "content": None, "tool_calls": calls}}


def _logprobs() -> Fields:
    tops = [{"token": "t", "logprob": -1.5, "bytes": [116]} for _ in range(_ALTERNATIVES)]
    return {"logprobs": {"content": [{"token": "t", "logprob": -0.5, "top_logprobs": tops}] * _TOKENS}}


KINDS = {
    "lists": Poison("8 MiB of empty lists", _repeated(b"[],"), _plain),
    "objects": Poison("as many objects within each other as are still read", _many(_DEEP), _plain),
    "fields": Poison("as many fields as are still read", _many(b'{"a":1},'), _plain),
    "messages": Poison("as many messages as are still read", _messages, _plain),
    "nesting": Poison("a million lists within each other", _nested, _plain),
    "texts": Poison("8 MiB of text with an emoji", _texts, _plain),
    "pattern": Poison(
        "a schema whose pattern takes for ever", _schema({"patternProperties": {_ENDLESS: {}}}), _long_key
    ),
    "doubling": Poison("a schema that doubles forty times", _schema(_doubling()), _long_key),
    "tool_calls": Poison("2,500 tool calls, to be compared with as many", _also(), _tool_calls),
    "logprobs": Poison("log probabilities of 2,000 tokens with 20 alternatives each", _also(logprobs=True), _logprobs),
}
"""By name."""
