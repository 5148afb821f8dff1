"""Content encodings undone within a limit: what is folded small may be large enough to end a process.

The decoders are `zlib`, `zstandard` and `brotli` (1.2 or later, the first that can bound its output). aiohttp and
httpx have decoders too, but only for their own streams and without a bound on the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Literal

import brotli
import zstandard

from slipstream.errors import SlipstreamError

_ZSTD_WINDOW = 8 * 1024 * 1024
"""Window size that RFC 9659 allows over HTTP: it bounds the memory that a frame can ask for before it yields a byte."""

_MOST_MEMBERS = 100
"""Limit of members in one gzip body. The bytes behind a member are copied for the next, and 8 MB can hold 400,000 empty
members: minutes of work."""


class Undecodable(SlipstreamError):
    """A body cannot be unfolded.

    Args:
        reason: `too_large`, or `encoding` for one that is unknown or broken.
    """

    def __init__(self, reason: Literal["too_large", "encoding"]) -> None:
        super().__init__(reason)
        self.reason = reason


def _inflate(data: bytes, limit: int, window_bits: int, whole: bool) -> bytes:
    parts: list[bytes] = []
    room = limit + 1
    for _ in range(_MOST_MEMBERS):  # RFC 9110 lets gzip members follow one another
        if not data or room <= 0:
            break
        member = zlib.decompressobj(window_bits)
        parts.append(member.decompress(data, room))
        room -= len(parts[-1])
        if whole and not member.eof and room > 0:
            raise zlib.error("the stream ends early")
        data = member.unused_data
    else:
        if data:
            raise zlib.error("too many members")
    return b"".join(parts)


def _gunzip(data: bytes, limit: int, whole: bool) -> bytes:
    return _inflate(data, limit, 16 + zlib.MAX_WBITS, whole)


def _undeflate(data: bytes, limit: int, whole: bool) -> bytes:
    try:
        return _inflate(data, limit, zlib.MAX_WBITS, whole)
    except zlib.error:  # "deflate" means zlib's format, yet some servers send the bare stream
        return _inflate(data, limit, -zlib.MAX_WBITS, whole)


def _unzstd(data: bytes, limit: int, whole: bool) -> bytes:
    # A frame that is cut short reads as what there is of it: its JSON or its stream will be found incomplete.
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    return bytes(decompressor.stream_reader(data, read_across_frames=True).read(limit + 1))


def _unbrotli(data: bytes, limit: int, whole: bool) -> bytes:
    decompressor = brotli.Decompressor()
    parts = [decompressor.process(data, output_buffer_limit=limit + 1)]
    while not decompressor.is_finished():
        if sum(map(len, parts)) > limit:
            break
        if decompressor.can_accept_more_data():
            if not whole:
                break
            raise ValueError("the stream ends early")
        parts.append(decompressor.process(b"", output_buffer_limit=limit + 1))
    return b"".join(parts)


_DECODERS: dict[bytes, Callable[[bytes, int, bool], bytes]] = {
    b"gzip": _gunzip,
    b"x-gzip": _gunzip,
    b"deflate": _undeflate,
    b"zstd": _unzstd,
    b"br": _unbrotli,
    b"identity": lambda data, limit, whole: data,
}
_DECODE_ERRORS = (zlib.error, zstandard.ZstdError, brotli.error, ValueError)


def decoded(body: bytes, encodings: bytes, limit: int, *, whole: bool = True) -> bytes:
    """The body with its Content-Encoding undone.

    Args:
        encodings: the value of that header, b"" where there is none.
        limit: the most bytes of the body, before, between and after the decoding steps.
        whole: whether a body that ends too early is an error; else what there is of it is returned.

    Raises:
        Undecodable: it is longer, or cannot be undone.
    """
    _check_size(body, limit)
    if not encodings:
        return body
    for name in reversed([name.strip() for name in encodings.lower().split(b",") if name.strip()]):
        decode = _DECODERS.get(name)
        if decode is None:
            raise Undecodable("encoding")
        try:
            body = decode(body, limit, whole)
        except _DECODE_ERRORS as error:
            raise Undecodable("encoding") from error
        _check_size(body, limit)
    return body


def _check_size(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise Undecodable("too_large")
