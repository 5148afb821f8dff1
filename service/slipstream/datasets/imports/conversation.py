"""Conversations as readers yield them, whatever format they came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.errors import SlipstreamError

Message = Mapping[str, Any]


class Unfit(SlipstreamError):
    """A record, or a part of one, cannot be imported.

    Attributes:
        field: its path, such as `messages[2].role`; "" for the record itself.
        reason: `expected ..., found ...`.
    """

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Place:
    """A record of a file. `line` counts from 1: the line on which it begins."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal: of a record, of a conversation, or, where it is `left_out`, of a part of one that is imported without
    it."""

    place: Place
    field: str
    reason: str
    left_out: bool = False

    def __str__(self) -> str:
        where = f"{self.place.file}: line {self.place.line}: "
        return where + (f"{self.field}: " if self.field else "") + self.reason


@dataclass(frozen=True, slots=True)
class Score:
    """A judgement of an answer in the words of its program.

    Attributes:
        value: in the program's range; None for a thumb.
    """

    name: str
    value: float | None = None
    thumbs: Literal["up", "down"] | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedCall:
    """A call of a model.

    Attributes:
        name: its id in the file; "" if it has none.
        request: fields of a chat completion's request, with the messages.
        answer: an assistant message.
        at: when it began, Unix seconds; None if the file does not say.
        latency: seconds.
        place: of its record.
    """

    name: str
    request: Mapping[str, Any]
    answer: Message
    place: Place
    at: float | None = None
    latency: float = 0.0
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    scores: Sequence[Score] = ()


@dataclass(frozen=True, slots=True)
class ImportedTask:
    """One request of a user: the calls that it took, in order.

    Attributes:
        name: its id in the file; "" if it has none.
        scores: of the whole, which its last answer gets.
    """

    name: str
    calls: Sequence[ImportedCall]
    scores: Sequence[Score] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session, imported whole or not at all.

    Attributes:
        name: its id in the file; "" if it has none, and then its content names it.
        session: its id, where the file has one.
    """

    name: str
    tasks: Sequence[ImportedTask]
    place: Place
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """Choices of the user.

    Attributes:
        session_field: field of a record, or attribute of a span, that names the session; None for the format's own.
        score: name of the judgements that count; None for those of an answer that has one name only.
    """

    session_field: str | None = None
    score: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Records that are no calls of a model, such as spans of tools: nothing is wrong with them."""

    count: int


def found(value: Any, longest: int = 60) -> str:
    """Return a value as an error shows it: its type and, of a short one, its text."""
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= longest else f"{text[:longest]}..."


def at_path(record: Mapping[str, Any], path: str) -> Any:
    """Return the value under a field: under the name itself, else along its dots; None if there is none."""
    if path in record:
        return record[path]
    value: Any = record
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def session_name(value: Any, at: str) -> str | None:
    """Return a session's id; None for none.

    Raises:
        Unfit: it is no text, and no number.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Unfit(at, f"expected the id of a session, found {found(value)}")
    return str(value)
