"""Header fields that an intermediary passes on (RFC 9110, section 7.6.1), as raw bytes in order, duplicates included.

Framing is the exception to "hop-by-hop": a request's `transfer-encoding` stays, because its body leaves in the coding
in which it came; an answer's goes, because the body is framed anew for the agent, who may speak HTTP/1.0.
"""

from __future__ import annotations

from enum import IntEnum

from slipstream.errors import SlipstreamError
from slipstream.http.known_names import KnownNames

Headers = list[tuple[bytes, bytes]]
"""Header fields in the order in which they came."""


class UnknownCoding(SlipstreamError):
    """A request's body is in a transfer coding that is not undone here: where it ends others might see differently."""


OWN_PREFIX = b"x-slipstream-"


class _Kind(IntEnum):
    """Meaning of a field for an intermediary; nearly all are `PLAIN`."""

    PLAIN = 0
    HOP_BY_HOP = 1
    CONNECTION = 2
    HOST = 3
    AUTHORIZATION = 4
    TRANSFER_ENCODING = 5
    CONTENT_LENGTH = 6
    EXPECT = 7  # 100-continue has been answered here
    OWN = 8


_KINDS = {
    b"connection": _Kind.CONNECTION,
    b"keep-alive": _Kind.HOP_BY_HOP,
    b"proxy-authenticate": _Kind.HOP_BY_HOP,
    b"proxy-authentication-info": _Kind.HOP_BY_HOP,
    b"proxy-authorization": _Kind.HOP_BY_HOP,
    b"proxy-connection": _Kind.HOP_BY_HOP,
    b"te": _Kind.HOP_BY_HOP,
    b"trailer": _Kind.HOP_BY_HOP,
    b"upgrade": _Kind.HOP_BY_HOP,
    b"host": _Kind.HOST,
    b"authorization": _Kind.AUTHORIZATION,
    b"transfer-encoding": _Kind.TRANSFER_ENCODING,
    b"content-length": _Kind.CONTENT_LENGTH,
    b"expect": _Kind.EXPECT,
}

_PLAIN, _HOST, _EXPECT, _OWN = _Kind.PLAIN, _Kind.HOST, _Kind.EXPECT, _Kind.OWN
_CONNECTION, _HOP_BY_HOP = _Kind.CONNECTION, _Kind.HOP_BY_HOP
_AUTHORIZATION, _TRANSFER_ENCODING, _CONTENT_LENGTH = (
    _Kind.AUTHORIZATION,
    _Kind.TRANSFER_ENCODING,
    _Kind.CONTENT_LENGTH,
)

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})
"""Fields that a `connection` header cannot remove: without them the message would be read differently."""

_NOTHING_NAMED = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"Close"})
"""Values of nearly all `connection` headers."""


def _kind(name: bytes) -> _Kind:
    return _OWN if name.startswith(OWN_PREFIX) else _KINDS.get(name, _PLAIN)


_kind_of = KnownNames(_kind)


def request_fields(
    headers: Headers, *, host: bytes | None, authorization: bytes | None, own: bool
) -> tuple[list[bytes], bool]:
    """Return the fields that are sent to an upstream.

    Args:
        host: put in the place of the agent's, where given.
        authorization: put in the place of the agent's, where given.
        own: whether `x-slipstream-...` fields go along.

    Returns:
        The fields' lines in parts, to be joined; whether the body leaves in chunks.

    Raises:
        UnknownCoding: `transfer-encoding` is not `chunked` alone.
    """
    lines: list[bytes] = []
    chunked, host_missing = False, host is not None
    for name, value in headers:
        kind = _kind_of[name]
        if kind is not _PLAIN:
            if kind is _CONNECTION:
                if value not in _NOTHING_NAMED:
                    return request_fields(_end_to_end(headers), host=host, authorization=authorization, own=own)
                continue
            if kind is _HOST:
                if host is not None:
                    if not host_missing:
                        continue  # said twice: production gets one
                    value, host_missing = host, False
            elif kind is _TRANSFER_ENCODING:
                if chunked or value.strip().lower() != b"chunked":
                    raise UnknownCoding
                chunked = True
            elif (
                kind is _HOP_BY_HOP
                or kind is _EXPECT
                or (kind is _AUTHORIZATION and authorization is not None)
                or (kind is _OWN and not own)
            ):
                continue
        lines += (name, b": ", value, b"\r\n")
    if host_missing and host is not None:
        lines[:0] = (b"host: ", host, b"\r\n")
    if authorization is not None:
        lines += (b"authorization: ", authorization, b"\r\n")
    return lines, chunked


def answer_fields(headers: Headers, *, length: bool) -> tuple[list[bytes], bool]:
    """Return the fields that go back to the agent.

    Args:
        length: whether a `content-length` may go along. Beside a `transfer-encoding` it never does: it is not the
            length then.

    Returns:
        The fields' lines in parts, to be joined; whether a `content-length` is in them.
    """
    lines: list[bytes] = []
    sized = False
    for name, value in headers:
        kind = _kind_of[name]
        if kind is not _PLAIN:
            if kind is _CONNECTION:
                if value not in _NOTHING_NAMED:
                    return answer_fields(_end_to_end(headers), length=length)
                continue
            if kind is _HOP_BY_HOP:
                continue
            if kind is _TRANSFER_ENCODING:
                if sized:
                    return answer_fields(headers, length=False)
                length = False
                continue
            if kind is _CONTENT_LENGTH:
                if not length:
                    continue
                sized = True
        lines += (name, b": ", value, b"\r\n")
    return lines, sized


def own_fields(headers: Headers) -> Headers:
    """The `x-slipstream-...` fields, their names in lower case."""
    own: Headers = []
    for name, value in headers:
        if _kind_of[name] is _OWN:
            own.append((name.lower(), value))
    return own


def has(headers: Headers, name: bytes) -> bool:
    """Return whether there is a field of this (lower-case) name."""
    return any(key.lower() == name for key, _ in headers)


def content_length(headers: Headers) -> int:
    """Return the value of `content-length`, which the parser has checked; 0 if there is none."""
    for name, value in headers:
        if _kind_of[name] is _CONTENT_LENGTH:
            # Python converts no more than 4,300 digits, and the parser takes any number of leading zeros.
            return int(value.strip().lstrip(b"0") or b"0")
    return 0


def last_coding(headers: Headers) -> bytes:
    """Return the last transfer coding of all fields together, in lower case; empty if there is none."""
    values = b",".join(value for name, value in headers if name.lower() == b"transfer-encoding").lower()
    return next((coding for value in reversed(values.split(b",")) if (coding := value.strip())), b"")


def has_body(headers: Headers) -> bool:
    """Return whether a request with these fields has a body."""
    return any(
        key.lower() == b"transfer-encoding" or (key.lower() == b"content-length" and value.strip(b"0 \t") != b"")
        for key, value in headers
    )


def _end_to_end(headers: Headers) -> Headers:
    """The fields without those that `connection` names as being for this connection alone, and without itself."""
    values = [value for name, value in headers if name.lower() == b"connection"]
    named = {token.strip().lower() for value in values for token in value.split(b",")}
    dropped = (named | {b"connection"}) - _FRAMING
    return [field for field in headers if field[0].lower() not in dropped]
