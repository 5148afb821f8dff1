"""Reading an answer that passes through: whether it is whole, under which id, and how many experiences it makes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

from slipstream.capture.completion import flaw_of, msg_id_of
from slipstream.dialects.body import Unreadable, header_value, parse_json
from slipstream.dialects.chat_stream import MAX_VALUES_OF_CHUNKS, assemble
from slipstream.dialects.events import events
from slipstream.http.encodings import Undecodable, decoded
from slipstream.http.headers import Headers
from slipstream.memory.parsing import MAX_VALUES, memory_of
from slipstream.tracing.catalogue import answer_attributes
from slipstream.tracing.tracer import Span, policy_key


@dataclass(frozen=True, slots=True)
class Answer:
    """A chat completion as the Explorer gave it.

    Attributes:
        msg_id: its id; None where it has none that can be named in a feedback.
        choices: Trinity keeps an experience of each.
        flaw: why it is not whole, in words; None where it is.
        completion: the `chat.completion` object, put together where it was streamed; None where there is none.
    """

    msg_id: str | None
    choices: int
    flaw: str | None
    completion: dict[str, Any] | None = field(default=None, compare=False)


_COPIES = 2
"""Copies of an answer's values: redaction makes one."""


def memory_of_answer(body: bytes, headers: Headers, limit: int, *, streamed: bool) -> int:
    """Return the bytes of memory that an answer takes once it is read."""
    with contextlib.suppress(Undecodable):  # of which nothing is read
        body = decoded(body, header_value(headers, b"content-encoding"), limit)
    return memory_of(body, copies=_COPIES, most=MAX_VALUES_OF_CHUNKS if streamed else MAX_VALUES)


def read_answer(body: bytes, headers: Headers, limit: int, *, streamed: bool) -> Answer:
    """Read an answer that came to its end."""
    try:
        plain = decoded(body, header_value(headers, b"content-encoding"), limit)
        completion = assemble(plain) if streamed else parse_json(plain)
    except (Unreadable, Undecodable) as error:
        return read_piece(body) if streamed else Answer(None, 0, error.reason)
    choices = completion.get("choices") if isinstance(completion, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return Answer(None, 0, "no_answer")
    msg_id = msg_id_of(completion)
    return Answer(msg_id, len(choices), "no_id" if msg_id is None else flaw_of(choices), completion)


def read_piece(body: bytes, flaw: str = "truncated") -> Answer:
    """Read the beginning of a stream that was cut: its id is in each of its events."""
    for _, data in events(body + b"\n\n"):
        try:
            chunk = parse_json(data)
        except Unreadable:
            break
        if isinstance(chunk, dict) and (msg_id := msg_id_of(chunk)) is not None:
            return Answer(msg_id, 0, flaw)
    return Answer(None, 0, flaw)


def describe(answer: Answer, span: Span) -> None:
    """Say in a chat's span what answered it."""
    span.set(answer_attributes(answer.completion or {}))
    if answer.msg_id is not None:
        span.remember(policy_key(answer.msg_id))
    if answer.flaw is not None:
        span.fail(answer.flaw)
