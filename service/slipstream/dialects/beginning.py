"""The first words of a conversation, found in the body of any of its calls.

An agent sends the whole conversation with each call, the oldest message first. So what its first user said is in every
body of the conversation, and in the first part of it. Instructions are left out, although they come earlier: programs
write the time into them, and change them when another agent takes over.

A body is read as JSON, by msgspec, which takes a third of a nanosecond for a byte that is of no interest. Of a long
body a part is enough: it is cut behind a message and closed by brackets. A cut at a wrong place gives no JSON, so what
is read of a part is what the whole says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from slipstream.dialects.form import Dialect

ENOUGH = 8 * 1024
"""Bytes of a body from which on a part of it may be enough."""

_CUTS = (ENOUGH // 2, 32 * 1024, 256 * 1024)
"""Bytes behind which a body is cut, unless it is shorter than twice as many."""

_NEXT = re.compile(rb'\}\s*+,\s*+\{\s*+"')
"""The end of an object in a list and the beginning of the next. Within a text a backslash would be before the quotation
mark."""

_TRIES = 64
"""Braces that are looked at behind a cut. The one that ends a message is among the first, unless a text has many."""

_CLOSINGS = (b"]}", b"]}]}")
"""The rest of a body that was cut between two messages, and between two parts of a message."""

_LONG = 64 * 1024
"""Bytes of a message from which on it counts as it is written, and not by its text."""

_NOTHING = msgspec.Raw()

_CHAT, _RESPONSES = Dialect.CHAT, Dialect.RESPONSES


class Held(NamedTuple):
    """A call that goes on from what the provider holds, so that its body says nothing about the beginning.

    Attributes:
        conversation: its id, which is the same for all of its calls; None where the request names the answer before.
    """

    conversation: str | None


class _Message(msgspec.Struct, gc=False):
    role: str | None = None
    content: msgspec.Raw = _NOTHING


class _Part(msgspec.Struct, gc=False):
    text: str | None = None


class _Thread(msgspec.Struct, gc=False):
    type: Any = None
    previous_message_id: Any = None


class _Chat(msgspec.Struct, gc=False):
    messages: list[_Message] = []


class _Messages(_Chat, gc=False):
    thread: _Thread | None = None


class _Responses(msgspec.Struct, gc=False):
    input: str | list[_Message] | None = None
    previous_response_id: Any = None
    conversation: Any = None


_read_content = msgspec.json.Decoder(str | list[_Part]).decode
_read_chat = msgspec.json.Decoder(_Chat).decode
_read_messages = msgspec.json.Decoder(_Messages).decode
_read_response = msgspec.json.Decoder(_Responses).decode

_UNREADABLE = (ValueError, RecursionError)
"""Raised by msgspec for a text that is no JSON, not of the expected form, no UTF-8, or nested too deep."""


def beginning(dialect: Dialect, body: bytes, *, whole: bool) -> bytes | Held | None:
    """The first user's words; None while more of the body is needed.

    They are the same however a message is written (as a text or in parts, with or without fields beside it). Without a
    user's message they are those of the first message, and b"" where nothing can be read. Takes any body, in a time
    that grows with its length alone.

    Args:
        body: as it was sent, or its first bytes. Not compressed.
        whole: nothing comes after it.
    """
    if len(body) >= ENOUGH and dialect is not _RESPONSES and (words := _in_a_part(body, whole)) is not None:
        return words
    if not whole:
        return None
    try:
        if dialect is _CHAT:
            return _first_words(_read_chat(body).messages)
        if dialect is _RESPONSES:  # a field before the list or after it may name what the provider holds
            return _of_response(_read_response(body))
        request = _read_messages(body)
    except _UNREADABLE:
        return b""
    thread = request.thread
    if thread is not None and thread.type == "continue" and _named(thread.previous_message_id):
        return Held(None)
    return _first_words(request.messages)


def _in_a_part(body: bytes, whole: bool) -> bytes | None:
    """The first words, where a part of the body holds them and the message behind them."""
    for cut in _CUTS:
        if len(body) < 2 * cut:
            return None
        end = _end_of_object(body, cut)
        if whole and 2 * end > len(body):
            return None  # then the whole is as quick
        for message in _messages_before(body, end)[:-1]:  # of the last one a part may be missing
            if message.role == "user":
                return _words(bytes(message.content))
    return None


def _messages_before(body: bytes, end: int) -> Sequence[_Message]:
    """The messages in the first bytes of a body; none where it was cut at another place than between two objects."""
    part = body[:end]
    for closing in _CLOSINGS:
        try:
            return _read_chat(part + closing).messages
        except _UNREADABLE:
            continue
    return ()


def _end_of_object(body: bytes, start: int) -> int:
    """The place behind the first object that ends behind `start` with another one after it; `start` if none is near."""
    at = start
    for _ in range(_TRIES):
        at = body.find(b"}", at)  # ten times as fast as a pattern, where there is none for long
        if at < 0:
            break
        if _NEXT.match(body, at):
            return at + 1
        at += 1
    return start


def _of_response(request: _Responses) -> bytes | Held:
    if _named(request.previous_response_id):
        return Held(None)
    conversation = request.conversation
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if _named(conversation):
        return Held(conversation)
    given = request.input
    return given.encode() if isinstance(given, str) else _first_words(given or ())


def _named(name: Any) -> bool:
    return isinstance(name, str) and name != ""


def _first_words(messages: Sequence[_Message]) -> bytes:
    for message in messages:
        if message.role == "user":
            written = bytes(message.content)
            if written.find(b"\\") < 0 and written[:1] == b'"':  # nearly always: the rest is for others
                return written[1:-1]
            return _words(written)
    return _words(bytes(messages[0].content)) if messages else b""


def _words(written: bytes) -> bytes:
    """The text of a message, by its content in JSON; where it has none, such as a picture, the content as it is
    written."""
    if len(written) > _LONG:
        return written
    try:
        content = _read_content(written)
    except _UNREADABLE:
        return written
    if isinstance(content, str):
        return content.encode()
    return "".join([part.text for part in content if part.text]).encode() or written
