"""What capture sees of production's traffic: a copy of a finished exchange, bounded in memory, never in the way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from slipstream.proxy.headers import Headers


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request that went through the proxy, with what came of it.

    Attributes:
        path: decoded, without the query: `/v1/chat/completions`.
        request_headers: as the caller sent them, `x-slipstream-*` and secrets included, names in lower case.
        request_body: None where it was longer than `capture.max_body` or did not arrive whole.
        status: of production's answer; None where there was none.
        response_body: as it passed, content encoding and SSE framing included; None where it was too long.
        started_at: Unix seconds.
        first_byte_after: seconds from there to the first byte of the answer's body; None where none came.
        duration: seconds from there to the end.
        complete: the whole answer came from production and was handed to a caller who was still there.
        error: `caller_gone`, a cause of `UpstreamError`, `cancelled` or `failed`; None exactly where complete.
    """

    method: str
    path: str
    request_headers: Headers
    request_body: bytes | None
    status: int | None
    response_headers: Headers
    response_body: bytes | None
    started_at: float
    first_byte_after: float | None
    duration: float
    complete: bool
    error: str | None


class Tap(Protocol):
    """Takes copies of exchanges. Both calls are made on the event loop of production's traffic: neither may block."""

    def wants(self, method: str, path: str, headers: Headers) -> bool:
        """Whether this exchange is to be copied; called with the request's head."""
        ...

    def record(self, exchange: Exchange) -> None:
        """Take the copy; called once, after the answer has left."""
        ...


class BodyCopy:
    """A copy of a body up to `limit` bytes; longer ones are let go at once."""

    __slots__ = ("_limit", "_pieces", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] | None = []

    def add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._pieces is None:
            return
        if self._size > self._limit:
            self._pieces = None
        elif piece:
            self._pieces.append(piece)

    def whole(self) -> bytes | None:
        """The body; None if it was longer than the limit."""
        return None if self._pieces is None else b"".join(self._pieces)


class Recording:
    """Makes an `Exchange` out of one that is passing by.

    Attributes:
        request: takes the pieces of the request body.
    """

    __slots__ = (
        "_first_byte_after",
        "_headers",
        "_max_body",
        "_method",
        "_path",
        "_response",
        "_response_headers",
        "_started",
        "_started_at",
        "_status",
        "request",
    )

    def __init__(self, method: str, path: str, headers: Headers, max_body: int) -> None:
        self.request = BodyCopy(max_body)
        self._response = BodyCopy(max_body)
        self._method = method
        self._path = path
        self._headers = headers
        self._status: int | None = None
        self._response_headers: Headers = []
        self._first_byte_after: float | None = None
        self._started_at = time.time()
        self._started = time.perf_counter()

    def answer_starts(self, status: int, headers: Headers) -> None:
        self._status = status
        self._response_headers = headers

    def answer_piece(self, piece: bytes) -> None:
        if piece and self._first_byte_after is None:
            self._first_byte_after = time.perf_counter() - self._started
        self._response.add(piece)

    def end(self, error: str | None, request_whole: bool) -> Exchange:
        return Exchange(
            method=self._method,
            path=self._path,
            request_headers=self._headers,
            request_body=self.request.whole() if request_whole else None,
            status=self._status,
            response_headers=self._response_headers,
            response_body=self._response.whole(),
            started_at=self._started_at,
            first_byte_after=self._first_byte_after,
            duration=time.perf_counter() - self._started,
            complete=error is None,
            error=error,
        )
