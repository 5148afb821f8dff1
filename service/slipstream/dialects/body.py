"""Reading a captured body: its JSON, and why it may give no call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from slipstream.errors import SlipstreamError
from slipstream.http.headers import Headers
from slipstream.jsontext import brackets, from_json, values
from slipstream.memory.parsing import MAX_VALUES

Reason = Literal[
    "not_a_chat",
    "opted_out",
    "incomplete",
    "status",
    "too_large",
    "too_many_values",
    "encoding",
    "not_json",
    "no_answer",
    "error_in_stream",
    "unfinished",
    "truncated_stream",
    "redaction_failed",
    "store_full",
    "unreadable",
]
"""Reasons why an exchange is not captured; the values are metric labels."""

MAX_NESTING = 100
"""Levels of a JSON value: far above any chat or tool schema, far below where walking it would exhaust the stack."""


class Unreadable(SlipstreamError):
    """A captured body cannot be used."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NotCaptured:
    """The reason why an exchange gives no call."""

    reason: Reason


def header_value(headers: Headers, name: bytes) -> bytes:
    """The value of the first header of that (lower-case) name, or b""."""
    return next((value.strip() for key, value in headers if key.lower() == name), b"")


def header_fields(headers: Headers) -> dict[bytes, bytes]:
    """The value of the first header of each name; names in lower case, values as they came."""
    return {key.lower(): value for key, value in reversed(headers)}


def parse_json(text: bytes | str) -> Any:
    """The JSON value of a body.

    Raises:
        Unreadable: `not_json`, `too_large` for more than `MAX_NESTING` levels, or `too_many_values`, which is found
            out before any of them is made.
    """
    return read_json(text)[0]


def read_json(text: bytes | str) -> tuple[Any, bool]:
    """The JSON value of a body, and whether the text is plain, as `jsontext.from_json` says.

    Raises:
        Unreadable: as `parse_json`.
    """
    if values(text) > MAX_VALUES:
        raise Unreadable("too_many_values")
    try:
        value, plain = from_json(text)
    except RecursionError as error:
        raise Unreadable("too_large") from error
    except ValueError as error:
        raise Unreadable("not_json") from error
    if brackets(text) > MAX_NESTING and not _is_shallow(value):
        raise Unreadable("too_large")
    return value, plain


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [child for parent in level if isinstance(parent, dict | list) for child in _children(parent)]
        if not level:
            return True
    return False


def _children(parent: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return parent.values() if isinstance(parent, dict) else parent
