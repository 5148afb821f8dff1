"""Which headers an intermediary passes on (RFC 9110, section 7.6.1), kept as raw bytes in order, duplicates included.

Framing is the exception to "hop-by-hop": a request's `transfer-encoding` stays, because its body leaves in the coding
in which it came; a response's goes, because the server that answers the caller frames the body itself.
"""

from __future__ import annotations

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]
"""Header fields with lower-case names, in the order in which they came."""

OWN_PREFIX = b"x-slipstream-"

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"upgrade",
    }
)

_NOT_FOR_UPSTREAM = _HOP_BY_HOP | {b"expect"}  # the server in front of us has already answered 100-continue

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})
"""What a `connection` header cannot name away: without these the message would be read differently."""


def request_headers(headers: Iterable[tuple[bytes, bytes]], host: bytes, authorization: bytes | None) -> Headers:
    """What leaves for production: its own host, and `authorization` in place of the caller's where it is given."""
    headers = list(headers)
    dropped = _NOT_FOR_UPSTREAM | _named_by_connection(headers)
    forwarded: Headers = []
    for name, value in headers:
        if name == b"authorization" and authorization is not None:
            continue
        if name == b"host":
            forwarded.append((name, host))
        elif name not in dropped and not name.startswith(OWN_PREFIX):
            forwarded.append((name, value))
    if not any(name == b"host" for name, _ in forwarded):
        forwarded.insert(0, (b"host", host))
    if authorization is not None:
        forwarded.append((b"authorization", authorization))
    return forwarded


def asks_upgrade_with_body(headers: Headers) -> bool:
    """Whether a request wants to change the protocol, as `h2c` does, and has a body too."""
    return (
        any(name == b"upgrade" for name, _ in headers)
        and b"upgrade" in _named_by_connection(headers)
        and any(name == b"transfer-encoding" or (name == b"content-length" and int(value)) for name, value in headers)
    )


def response_headers(status: int, headers: Headers) -> Headers:
    """What goes back to the caller."""
    dropped = _HOP_BY_HOP | _named_by_connection(headers) | {b"transfer-encoding"}
    if status in (204, 304) or any(name == b"transfer-encoding" for name, _ in headers):
        # A length beside a coding is not the length; and uvicorn would wait for the bytes of a 304's length.
        dropped = dropped | {b"content-length"}
    return [(name, value) for name, value in headers if name not in dropped]


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    named = frozenset(
        token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    )
    return named - _FRAMING
