"""One HTTP/1.1 connection to the production model, on asyncio with llhttp's parser (httptools, which uvicorn uses too).

It carries one exchange at a time and neither adds nor changes a byte: the request goes out as it is written, the
response comes back as raw header fields and as body bytes in the pieces in which they arrived.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, cast

import httptools

from slipstream.errors import SlipstreamError
from slipstream.proxy.headers import Headers

_BUFFERED = 64 * 1024
"""Body bytes that wait for a slow caller before reading stops: uvicorn's own mark, so that both sides hold as much."""

_LONGEST_HEAD = 1024 * 1024
"""Bytes without a whole response head that are taken for a broken upstream; real ones stay under 64 KiB."""


Cause = Literal["connect", "connect_timeout", "first_byte_timeout", "idle_timeout", "closed", "protocol"]


class UpstreamError(SlipstreamError):
    """The production model could not be reached, or its answer did not come to its end.

    Args:
        cause: what happened, one of `Cause`; a label of the metrics and the `code` of the error body.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause: Cause = cause

    @property
    def timed_out(self) -> bool:
        return self.cause.endswith("_timeout")


class Connection(asyncio.Protocol):
    """A connection; `begin` starts an exchange, `head` and `read` take its response.

    Args:
        on_lost: called once when the connection is gone, idle or not.

    Attributes:
        status: of the response, once `head` returned.
        headers: of the response, names in lower case.
        head_at: `time.perf_counter()` when the response's head was complete.
        answered: a byte came back for this exchange.
        reusable: the exchange is over and another may follow on this connection.
    """

    def __init__(self, on_lost: Callable[[Connection], None]) -> None:
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: UpstreamError | None = None
        self._reading_paused = False
        self._forget_exchange()

    def _forget_exchange(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self._bodiless = False
        self._interim = False
        self._until_close = False
        self._complete = False
        self._head_size = 0
        self._chunks: list[bytes] = []
        self._buffered = 0
        self.status: int | None = None
        self.headers: Headers = []
        self.head_at = 0.0
        self.answered = False
        self.reusable = False

    # The exchange

    def begin(self, method: str) -> None:
        """Start an exchange. A parser of its own keeps one response's trailers out of the next one's headers."""
        self._forget_exchange()
        self._bodiless = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)

    def write(self, data: bytes) -> None:
        """Send request bytes; a connection that is gone swallows them, and `head` tells."""
        if transport := self._open_transport():
            transport.write(data)

    async def drain(self) -> None:
        """Wait until the upstream has taken what was written."""
        await self._writable.wait()

    def within(self, seconds: float, cause: Cause) -> None:
        """Fail the connection after `seconds`, unless `no_limit` comes first; one limit at a time."""
        self.no_limit()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._too_slow, seconds, cause)

    def no_limit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def head(self) -> int:
        """Wait for the response's head; returns the status.

        Raises:
            UpstreamError: the connection failed first.
        """
        while self.status is None:
            await self._wait()
        self.no_limit()
        return self.status

    async def read(self, idle_timeout: float) -> bytes:
        """The body bytes that have arrived since the last read; waits for some, and returns b"" at the end only.

        Raises:
            UpstreamError: nothing came for `idle_timeout` seconds, or the connection failed before the body's end.
        """
        while not self._chunks and not self._complete:
            self.within(idle_timeout, "idle_timeout")
            try:
                await self._wait()
            finally:
                self.no_limit()
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered = 0
        if self._reading_paused and (transport := self._open_transport()):
            self._reading_paused = False
            transport.resume_reading()
        return data

    @property
    def at_end(self) -> bool:
        """The whole response was received and read."""
        return self._complete and not self._chunks

    @property
    def open(self) -> bool:
        return self._open_transport() is not None

    def close(self) -> None:
        """End the connection now; what was not sent yet stays unsent, so that no half request looks whole."""
        self.no_limit()
        self._parser = None
        if self._transport is not None:
            self._transport.abort()

    def _open_transport(self) -> asyncio.Transport | None:
        return None if self._transport is None or self._transport.is_closing() else self._transport

    def _too_slow(self, seconds: float, cause: Cause) -> None:
        self._fail(UpstreamError(cause, f"nothing came for {seconds:g} s"))

    def _fail(self, error: UpstreamError) -> None:
        if self._error is None:
            self._error = error
        self._writable.set()
        self._wake()
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._complete:  # nothing was asked: what comes now belongs to no exchange
            self.close()
            return
        self.answered = True
        if self.status is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if not self._complete:
                self._fail(UpstreamError("protocol", f"the answer is not HTTP/1.1: {error}"))
        if self.status is None and self._head_size > _LONGEST_HEAD:
            self._fail(UpstreamError("protocol", f"no end of the answer's head in {_LONGEST_HEAD} bytes"))
        elif self._buffered > _BUFFERED and not self._reading_paused and (transport := self._open_transport()):
            self._reading_paused = True
            transport.pause_reading()
        if self.status is not None:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.no_limit()
        self.reusable = False
        if self._error is None:
            if exc is None and self.status is not None and self._until_close:
                self._complete = True
            when = "before an answer" if self.status is None else "in mid-answer"
            self._error = UpstreamError("closed", f"the connection was closed {when}")
        self._writable.set()
        self._wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self.reusable = False  # a second response, to no request

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:  # after the head these are trailers, which are dropped
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._complete or self._parser is None:
            return
        status = self._parser.get_status_code()
        if status < 200 and status != 101:
            self._interim = True
            self.headers = []
            return
        if not 200 <= status <= 599:
            self._fail(UpstreamError("protocol", f"the answer has the status {status}"))
            return
        self.status = status
        self.head_at = time.perf_counter()
        self._until_close = not any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if self._bodiless:  # the parser cannot know that the request was a HEAD
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self._complete:
            self.reusable = False
            return
        self._chunks.append(body)
        self._buffered += len(body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif not self._complete and self._parser is not None:
            self._complete = True
            self.reusable = self._parser.should_keep_alive()
