"""Answers of the proxy's own: why a request is not taken, or has no answer of an upstream's, and how that is said."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from slipstream.errors import error_body
from slipstream.proxy.limits import PROGRESS, BodyLimit, Limit

REASONS = {
    200: b"OK",
    202: b"Accepted",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    426: b"Upgrade Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}
"""Reason phrase of each status that the proxy itself answers."""

_RETRY_AFTER = b"retry-after: 1\r\n"
"""With each 503: what is full now has room again as soon as an exchange ends, and SDKs spread their further tries."""


class Refusal(NamedTuple):
    """An answer in the place of an upstream's: an error in OpenAI's format.

    Attributes:
        limit: as which it is counted, where it is.
        kind: the error's `type`.
        fields: further lines of the answer's head.
    """

    status: int
    code: str | None
    message: str
    limit: Limit | None = None
    kind: str = "invalid_request_error"
    fields: bytes = b""

    def body(self) -> bytes:
        """In JSON."""
        return json.dumps(error_body(self.message, kind=self.kind, code=self.code)).encode()


# What is no request, or none that can be passed on

OTHER_VERSION = Refusal(505, "invalid_request", "HTTP/1.1 and HTTP/1.0 are spoken here.")
NO_PATH = Refusal(400, "invalid_request", "The request's target is neither a path nor an http(s) URL.")
CONNECT = Refusal(405, None, "This is no HTTP proxy.")
WEBSOCKET = Refusal(
    426,  # at which clients of the Responses API go on over HTTP at once; a 403 they try again
    None,
    "Slipstream carries HTTP and no websockets: use HTTP with streaming, or connect to the production model directly.",
    "websocket",
    kind="websocket_unsupported",
    fields=b"upgrade: HTTP/1.1\r\nconnection: upgrade\r\n",  # a 426 says what to use instead (RFC 9110, 15.5.22)
)
UPGRADE = Refusal(
    400,
    None,
    "A request with a body cannot ask for an upgrade (with Java's HttpClient: set version(HTTP_1_1)).",
    kind="upgrade_unsupported",
)
UNKNOWN_CODING = Refusal(501, "unknown_coding", "A body may be sent in chunks, and in no other transfer coding.")
CHUNKS_OF_OLD = Refusal(400, "invalid_request", "HTTP/1.0 knows no transfer-encoding.")


def unreadable(flaw: object) -> Refusal:
    return Refusal(400, "invalid_request", f"The request cannot be read: {flaw}.")


# Whose session has ended

SESSION_ENDED = Refusal(
    401,
    "slipstream_session_ended",
    "Slipstream: the session with the page has ended: it expired or was signed out, or its key expired or was taken "
    "out. Sign in again.",
    fields=b"www-authenticate: Bearer\r\n",
)

# What is more than there may be

TOO_MANY_CONNECTIONS = Refusal(
    503,
    "too_many_connections",
    "The sidecar has as many connections open as it may (limits.connections); try again.",
    kind="server_error",
    fields=_RETRY_AFTER,
)
TOO_MANY_STREAMS = Refusal(
    503,
    "too_many_streams",
    "The sidecar carries as many requests as it may (limits.streams); try again.",
    "streams",
    "server_error",
    _RETRY_AFTER,
)


def too_often(caller: str, wait: float) -> Refusal:
    text = f"Slipstream: too many requests a minute come from {caller} (limits.address_requests)."
    return Refusal(429, "slipstream_address_limit", text, "address_requests", "requests", _again_in(wait))


def fails_too_often(caller: str, wait: float) -> Refusal:
    text = f"Slipstream: too many requests without a valid key come from {caller} (limits.address_failures)."
    return Refusal(429, "slipstream_address_limit", text, "address_failures", "requests", _again_in(wait))


def key_too_often(name: str, most: int, wait: float) -> Refusal:
    text = f"Slipstream: this key ({name}) has {most} requests a minute."
    return Refusal(429, "slipstream_rate_limit", text, kind="requests", fields=_again_in(wait))


def _again_in(seconds: float) -> bytes:
    return b"retry-after: %d\r\n" % math.ceil(seconds)


def head_too_large(most: int) -> Refusal:
    text = f"The request's head, or its trailers, are longer than {most} bytes (limits.header_bytes)."
    return Refusal(431, "head_too_large", text, "header_bytes")


def too_many_headers(most: int) -> Refusal:
    text = f"The request has more than {most} header fields (limits.headers)."
    return Refusal(431, "too_many_headers", text, "headers")


def body_too_large(longest: BodyLimit) -> Refusal:
    text = f"The request's body is longer than {longest.most} bytes ({longest.key})."
    return Refusal(413, "too_large", text, longest.limit)


def head_too_slow(seconds: float) -> Refusal:
    text = f"The request's head did not come within {seconds:g} s (limits.header_timeout)."
    return Refusal(408, "too_slow", text, "header_timeout")


def body_too_slow(seconds: float) -> Refusal:
    text = f"Less than {PROGRESS} bytes of the request's body came within {seconds:g} s. (limits.body_timeout)"
    return Refusal(408, "too_slow", text, "body_timeout")
