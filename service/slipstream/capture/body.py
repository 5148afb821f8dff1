"""Reading a captured body: its content encodings undone within a limit, and its JSON.

The decoders are `zlib`, `zstandard` and `brotli` (1.2 or later, the first that can bound its output). aiohttp and
httpx have decoders too, but only for their own streams and without a bound on the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import brotli
import zstandard

from slipstream.errors import SlipstreamError
from slipstream.jsontext import from_json
from slipstream.proxy.headers import Headers

Reason = Literal[
    "not_a_chat",
    "opted_out",
    "incomplete",
    "status",
    "too_large",
    "encoding",
    "not_json",
    "no_answer",
    "error_in_stream",
    "truncated_stream",
    "redaction_failed",
    "store_full",
    "unreadable",
]
"""Why an exchange is not captured; the values are metric labels."""

ZSTD_WINDOW = 8 * 1024 * 1024
"""What RFC 9659 allows over HTTP: it bounds the memory that a frame can ask for before it yields a byte."""

_MOST_MEMBERS = 100
"""Of one gzip body. What is behind a member is copied for the next, and 8 MB may hold 400,000 empty ones: minutes."""

MAX_NESTING = 100
"""Levels of a JSON value: far above any chat or tool schema, far below where walking it would exhaust the stack."""


class Unreadable(SlipstreamError):
    """A captured body cannot be used."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class NotCaptured:
    """Why an exchange gives no call."""

    reason: Reason


def header_value(headers: Headers, name: bytes) -> bytes:
    """The value of the first header of that (lower-case) name, or b""."""
    return next((value.strip() for key, value in headers if key.lower() == name), b"")


def header_fields(headers: Headers) -> dict[bytes, bytes]:
    """The value of the first header of each name; names in lower case, values as they came."""
    return {key.lower(): value for key, value in reversed(headers)}


def _inflate(data: bytes, limit: int, window_bits: int) -> bytes:
    parts: list[bytes] = []
    room = limit + 1
    for _ in range(_MOST_MEMBERS):  # RFC 9110 lets gzip members follow one another
        if not data or room <= 0:
            break
        member = zlib.decompressobj(window_bits)
        parts.append(member.decompress(data, room))
        room -= len(parts[-1])
        if not member.eof and room > 0:
            raise zlib.error("the stream ends early")
        data = member.unused_data
    else:
        if data:
            raise zlib.error("too many members")
    return b"".join(parts)


def _gunzip(data: bytes, limit: int) -> bytes:
    return _inflate(data, limit, 16 + zlib.MAX_WBITS)


def _undeflate(data: bytes, limit: int) -> bytes:
    try:
        return _inflate(data, limit, zlib.MAX_WBITS)
    except zlib.error:  # "deflate" means zlib's format, yet some servers send the bare stream
        return _inflate(data, limit, -zlib.MAX_WBITS)


def _unzstd(data: bytes, limit: int) -> bytes:
    # A frame that is cut short reads as what there is of it: its JSON or its stream will be found incomplete.
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
    return bytes(decompressor.stream_reader(data, read_across_frames=True).read(limit + 1))


def _unbrotli(data: bytes, limit: int) -> bytes:
    decompressor = brotli.Decompressor()
    parts = [decompressor.process(data, output_buffer_limit=limit + 1)]
    while not decompressor.is_finished():
        if sum(map(len, parts)) > limit:
            break
        if decompressor.can_accept_more_data():
            raise ValueError("the stream ends early")
        parts.append(decompressor.process(b"", output_buffer_limit=limit + 1))
    return b"".join(parts)


_DECODERS: dict[bytes, Callable[[bytes, int], bytes]] = {
    b"gzip": _gunzip,
    b"x-gzip": _gunzip,
    b"deflate": _undeflate,
    b"zstd": _unzstd,
    b"br": _unbrotli,
    b"identity": lambda data, limit: data,
}
_DECODE_ERRORS = (zlib.error, zstandard.ZstdError, brotli.error, ValueError)


def decoded(body: bytes, encodings: bytes, limit: int) -> bytes:
    """The body with its Content-Encoding undone.

    Args:
        encodings: the value of that header, b"" where there is none.
        limit: the most bytes of the body, before, between and after the decoding steps.

    Raises:
        Unreadable: `too_large`, or `encoding` for one that is unknown or broken.
    """
    _check_size(body, limit)
    if not encodings:
        return body
    for name in reversed([name.strip() for name in encodings.lower().split(b",") if name.strip()]):
        decode = _DECODERS.get(name)
        if decode is None:
            raise Unreadable("encoding")
        try:
            body = decode(body, limit)
        except _DECODE_ERRORS as error:
            raise Unreadable("encoding") from error
        _check_size(body, limit)
    return body


def _check_size(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise Unreadable("too_large")


def parse_json(text: bytes | str) -> Any:
    """The JSON value of a body.

    Raises:
        Unreadable: `not_json`, or `too_large` for more than `MAX_NESTING` levels.
    """
    return read_json(text)[0]


def read_json(text: bytes | str) -> tuple[Any, bool]:
    """The JSON value of a body, and whether the text is plain, as `jsontext.from_json` says.

    Raises:
        Unreadable: as `parse_json`.
    """
    try:
        value, plain = from_json(text)
    except RecursionError as error:
        raise Unreadable("too_large") from error
    except ValueError as error:
        raise Unreadable("not_json") from error
    if _brackets(text) > MAX_NESTING and not _is_shallow(value):
        raise Unreadable("too_large")
    return value, plain


def _brackets(text: bytes | str) -> int:
    """At least as many as the levels, and counted in a fraction of the time."""
    if isinstance(text, str):
        return text.count("{") + text.count("[")
    return text.count(b"{") + text.count(b"[")


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [child for parent in level if isinstance(parent, dict | list) for child in _children(parent)]
        if not level:
            return True
    return False


def _children(parent: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return parent.values() if isinstance(parent, dict) else parent
