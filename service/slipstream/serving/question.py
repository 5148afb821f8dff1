"""The body of a chat request that the lane may be asked: whether it can serve it, and the same with the lane's model.

Nothing but the value of the top-level `model` is changed, byte by byte, unless the request chooses among some of its
tools: then those tools and the mode of the choice take the place of `tools` and `tool_choice`. Where it is not certain
which bytes the model's are, the request is not for the lane. It is certain if the body is JSON in UTF-8, no escape in
it could spell the key in another way, and only one of the keys `"model"` in it is the top-level one. With several of
them each is tried: to change that value changes what the whole says, and to rename that key leaves no `model`, so it
stands there once.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

import msgspec

from slipstream.dialects.allowed_tools import is_among_some, narrowed

Unfit = Literal["content", "context"]
"""Reasons why the lane cannot be asked: what the body holds, or its length in tokens."""

_BYTES_A_TOKEN = 3
"""Bytes of a body that are taken for a token, so that a prompt is not taken for shorter than it is: of English text a
token is four or more."""

_MOST_KEYS = 16
"""Keys `"model"` that are tried, because each takes two readings of the body. Others stand in schemas of tools."""

_MOST_READ = 4 * 1024**2
"""Bytes that are read for all of these keys: some ten milliseconds, in which a worker serves nobody else."""

_SPELT = re.compile(rb"\\u00(?:6[4cCdDfF]|65)")
"""An escape that stands for a letter of `model`. No program writes such escapes, but JSON allows them in a key."""

_KEY = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*")')
_NAME = b'"model"'

_PROBE = b'"\\u0000slipstream"'
_PROBED = "\0slipstream"
_RENAMED = b'"m0del"'

_Raw = msgspec.Raw
_ABSENT = msgspec.Raw()


class _Part(msgspec.Struct, gc=False):
    """A part of a message: text and nothing else."""

    type: Literal["text"]
    text: _Raw


class _ToolCall(msgspec.Struct, gc=False):
    function: _Raw
    type: Literal["function"] = "function"


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: _Raw = _ABSENT
    name: _Raw = _ABSENT
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: _Raw = _ABSENT
    reasoning_content: _Raw = _ABSENT
    annotations: _Raw = _ABSENT
    refusal: None = None
    audio: None = None
    function_call: None = None


class _Tool(msgspec.Struct, gc=False):
    type: Literal["function"]
    function: _Raw


class _Question(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields that a request for the lane may have. The last ones are for a provider, and no server of a lane minds
    them; those that it would have to obey and may not know are not among them."""

    model: str
    messages: list[_Message]
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: _Raw = _ABSENT
    response_format: _Raw = _ABSENT
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: _Raw = _ABSENT
    temperature: _Raw = _ABSENT
    top_p: _Raw = _ABSENT
    presence_penalty: _Raw = _ABSENT
    frequency_penalty: _Raw = _ABSENT
    logit_bias: _Raw = _ABSENT
    seed: _Raw = _ABSENT
    reasoning_effort: _Raw = _ABSENT
    chat_template_kwargs: _Raw = _ABSENT
    n: Literal[1] | None = None
    stream: bool | None = None
    stream_options: _Raw = _ABSENT
    store: bool | None = None
    logprobs: bool | None = None
    top_logprobs: None = None
    user: _Raw = _ABSENT
    metadata: _Raw = _ABSENT
    safety_identifier: _Raw = _ABSENT
    prompt_cache_key: _Raw = _ABSENT
    service_tier: _Raw = _ABSENT


class _Top(msgspec.Struct):
    model: Any = msgspec.UNSET


class _Place(NamedTuple):
    """The bytes of a body in which the model's name stands, quotation marks included."""

    start: int
    end: int


class Question(NamedTuple):
    """A request that the lane can serve."""

    body: bytes
    place: _Place

    def of(self, model: str) -> bytes:
        """The body with this model's name."""
        return b"%b%b%b" % (self.body[: self.place.start], msgspec.json.encode(model), self.body[self.place.end :])


_read = msgspec.json.Decoder(_Question).decode
_read_top = msgspec.json.Decoder(_Top).decode
_read_fields = msgspec.json.Decoder(dict[str, _Raw]).decode
_read_any = msgspec.json.Decoder().decode
_read_parts = msgspec.json.Decoder(list[_Part]).decode

_UNREADABLE = (ValueError, RecursionError)
"""Raised by msgspec for a text that is no JSON, not of the expected form, no UTF-8, or nested too deep."""


def question_of(body: bytes, max_context: int | None) -> Question | Unfit:
    """The request of a body as the lane can serve it, or why it cannot. Takes any bytes.

    Args:
        max_context: the most tokens of prompt and answer; None for any number.
    """
    try:
        if not body.isascii():
            str(body, "utf-8")  # a reader that is not as strict might see other ends of texts
        asked = _read(body)
        if asked.store or asked.logprobs or not asked.messages or not all(map(_is_text, asked.messages)):
            return "content"
        place = _place(body)
        if place is not None and is_among_some(asked.tool_choice):
            body = _with_allowed_tools(body)
            place = _place(body)
    except _UNREADABLE:
        return "content"
    if place is None:
        return "content"
    answer = asked.max_completion_tokens or asked.max_tokens or 0
    if max_context is not None and len(body) // _BYTES_A_TOKEN + answer > max_context:
        return "context"
    return Question(body, place)


def _with_allowed_tools(body: bytes) -> bytes:
    """The body with the tools that its choice allows.

    Raises:
        ValueError: the choice names anything else than functions of the request.
    """
    fields = _read_fields(body)
    kept = narrowed({name: _read_any(fields[name]) for name in ("tools", "tool_choice") if name in fields})
    if kept is None:
        raise ValueError("tool_choice: expected functions of the request")
    return msgspec.json.encode({**fields, **kept})


def _is_text(message: _Message) -> bool:
    content = memoryview(message.content)
    first = content[:1].tobytes()
    if first == b"[":
        return bool(_read_parts(content))
    return first in (b"", b'"', b"n")  # absent, a text, or null


def _place(body: bytes) -> _Place | None:
    """The place of the top-level model's name in a body that is known to have one; None where it is not certain."""
    if _SPELT.search(body):
        return None
    keys = body.count(_NAME)
    if keys == 1:
        return _Place(*found.span(1)) if (found := _KEY.search(body)) else None
    if keys * len(body) > _MOST_READ:
        return None
    top = None
    for count, found in enumerate(_KEY.finditer(body)):
        if count == _MOST_KEYS:
            return None
        place = _Place(*found.span(1))
        changed = body[: place.start] + _PROBE + body[place.end :]
        if _read_top(changed).model == _PROBED:
            name_ends = found.start() + len(_NAME)
            renamed = body[: found.start()] + _RENAMED + body[name_ends:]
            if _read_top(renamed).model is not msgspec.UNSET:
                return None  # the key is there twice, and readers differ in which of them counts
            top = place
    return top
