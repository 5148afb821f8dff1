"""One HTTP/1.1 connection to an upstream, on asyncio with llhttp's parser (httptools, which uvicorn uses too).

It carries one exchange at a time and neither adds nor changes a byte: the request goes out as it is written, the
answer comes back as raw header fields and as body bytes in the pieces in which they arrived. All of it happens in
callbacks, with no task and no future: at tens of thousands of requests a second those would be the larger part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import cast

import httptools

from slipstream.http.deadline import Deadline
from slipstream.http.errors import Cause, UpstreamError
from slipstream.http.headers import Headers, has, has_body, last_coding
from slipstream.http.receiver import Receiver
from slipstream.http.tls_buffers import limit_unsent, read_nothing_while_paused
from slipstream.http.writing import write

_LONGEST_FIELDS = 1024 * 1024
"""Bytes of a head or of trailers that are taken for a broken upstream; real ones stay under 64 KiB."""

_INTERIM = (100, 102, 103)
"""Interim answers that the parser knows to have no body. No other has one either (RFC 9110, 15.2), but where another
states a length, the parser would take the beginning of the answer for its body."""


class Connection(asyncio.Protocol):
    """A connection, kept from exchange to exchange.

    Args:
        release: called when an exchange is over and another may follow.
        lost: called once when the connection is gone, idle or not.

    Attributes:
        status, reason, headers: of the answer; names as they came.
        head_at: `time.perf_counter()` when the answer's head was complete.
        answered: a byte came back for this exchange.
        idle_since: for whoever keeps it: when the last exchange ended.
    """

    __slots__ = (
        "_bodiless",
        "_cause",
        "_complete",
        "_deadline",
        "_eof",
        "_error",
        "_fields_size",
        "_held",
        "_idle_timeout",
        "_interim",
        "_keep_alive",
        "_limit",
        "_loop",
        "_lost",
        "_parser",
        "_pieces",
        "_receiver",
        "_release",
        "_starts",
        "_surplus",
        "_transport",
        "answered",
        "head_at",
        "headers",
        "idle_since",
        "reason",
        "status",
    )

    def __init__(
        self,
        idle_timeout: float,
        release: Callable[[Connection], None],
        lost: Callable[[Connection], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle_timeout = idle_timeout
        self._release = release
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._receiver: Receiver | None = None
        self._deadline = Deadline(self._loop, self._too_slow)
        self._cause: Cause = "first_byte_timeout"
        self._limit = 0.0
        self._error: UpstreamError | None = None
        self._held = False
        self._eof = False
        self._bodiless = False
        self._clear()
        self.head_at = 0.0
        self.idle_since = 0.0

    # What the exchange asks for

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def begin(self, receiver: Receiver, *, bodiless: bool) -> None:
        """Start an exchange.

        Args:
            bodiless: the answer to this method has no body, whatever its head says (HEAD).
        """
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        self._receiver = receiver
        self._bodiless = bodiless
        self._clear()

    def _clear(self) -> None:
        """Forget the answer of the last exchange."""
        self._pieces: list[bytes] = []
        self._complete = self._keep_alive = self._surplus = False
        self._interim = self._starts = False
        self._fields_size = 0
        self.status = 0
        self.reason = b""
        self.headers: Headers = []
        self.answered = False

    def hand_over_to(self, receiver: Receiver) -> None:
        """Let another receiver take the rest of the answer, at once."""
        self._receiver = receiver
        self.go_on()

    def send(self, head: bytes, pieces: Sequence[bytes]) -> None:
        """Send a part of the request; a connection that is gone swallows it, and `failed` tells."""
        if self._transport is not None:
            write(self._transport, head, pieces)
            if self.status and self._receiver is not None and not self._held:
                self.within(self._idle_timeout, "idle_timeout")  # the answer has begun, and may wait for this

    def within(self, seconds: float, cause: Cause) -> None:
        """Fail the exchange after so long, unless the answer starts or another limit is set before."""
        self._cause = cause
        self._limit = seconds
        self._deadline.set(seconds)

    def no_limit(self) -> None:
        self._deadline.clear()

    def hold(self) -> None:
        """Take no more of the answer for now: whoever it is for does not keep up."""
        if not self._held and self._transport is not None:
            self._held = True
            self._transport.pause_reading()
            self._deadline.clear()

    def go_on(self) -> None:
        if self._held and self._transport is not None:
            self._held = False
            self._transport.resume_reading()
            if self._receiver is not None:
                self.within(self._idle_timeout, "idle_timeout")

    def close(self) -> None:
        """End the connection now; what was not sent yet stays unsent, so that no half request looks whole."""
        self._receiver = None
        self._deadline.end()
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: UpstreamError) -> None:
        receiver, self._error = self._receiver, error
        self.close()
        if receiver is not None:
            receiver.failed(error)

    def _too_slow(self) -> None:
        self._fail(UpstreamError(self._cause, f"nothing came for {self._limit:g} s"))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        read_nothing_while_paused(self._transport)
        limit_unsent(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._receiver is None:  # nothing was asked: what comes now belongs to no exchange
            self.close()
            return
        self.answered = True
        assert self._parser is not None  # for the type checker: `begin` made it
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._surplus = True
            if not self._complete:
                self._hand_over()
                self._fail(self._error or UpstreamError("protocol", f"the answer is not HTTP/1.1: {error}"))
                return
        if self._error is not None:
            self._fail(self._error)
            return
        if self._pieces or self._complete:
            self._fields_size = 0
        else:
            self._fields_size += len(data)
            if self._fields_size > _LONGEST_FIELDS:
                part = "trailers" if self.status else "head"
                self._fail(UpstreamError("protocol", f"no end of the answer's {part} in {_LONGEST_FIELDS} bytes"))
                return
        self._hand_over()

    def eof_received(self) -> None:
        self._eof = True  # over TLS only where the other end said so: a cut below it brings no such call

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._receiver is not None:
            if self._eof and self.status and not self._framed():
                self._complete = True
                self._surplus = True
                self._hand_over()
            else:
                when = "in mid-answer" if self.status else "before an answer"
                self._fail(UpstreamError("closed", f"the connection was closed {when}"))
        self._parser = None  # which knows this object, and would keep it from being freed at once
        self._deadline.end()
        self._lost(self)

    def pause_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.may_send(False)

    def resume_writing(self) -> None:
        if self._receiver is not None:
            self._receiver.may_send(True)

    def _hand_over(self) -> None:
        """Tell the receiver in one call of all that a read brought."""
        receiver, starts, pieces, ends = self._receiver, self._starts, self._pieces, self._complete
        if receiver is None or not (starts or pieces or ends):
            return
        self._starts = False
        if pieces:
            self._pieces = []
        if not ends:
            if not self._held:
                self.within(self._idle_timeout, "idle_timeout")
            receiver.answer(starts, pieces, False)
            return
        # The pool asks whether it is open still. After the 500 of an application that raised, uvicorn closes the
        # connection and has not announced it: the next request on it would meet the end.
        reusable = self._keep_alive and not self._surplus and self.status != 500
        if self._bodiless:
            self._parser = None  # it waits for the body that this answer has not
        self._receiver = None
        self._deadline.clear()
        if reusable and not self._held:
            self._release(self)
        else:
            self.close()
        receiver.answer(starts, pieces, True)

    def _framed(self) -> bool:
        """Return whether the answer states its end; otherwise it ends with the connection."""
        return has(self.headers, b"content-length") or last_coding(self.headers) == b"chunked"

    # The parser's callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self._surplus = True  # the beginning of an answer to no request, to which the next one would be joined

    def on_status(self, reason: bytes) -> None:
        if not self._complete:
            self.reason += reason  # it comes in the pieces in which it was read

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # after the head these are trailers, which are dropped
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._complete or self._parser is None:
            self._surplus = True  # a second answer, to no request
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            if status not in _INTERIM and has_body(self.headers):
                self._error = UpstreamError("protocol", f"an interim answer ({status}) states that it has a body")
                return
            self._interim = True
            self.reason = b""
            self.headers = []
            return
        if not 200 <= status <= 599:
            self._error = UpstreamError("protocol", f"the answer has the status {status}")
            return
        self.status = status
        self.head_at = time.perf_counter()
        self._starts = True
        if self._bodiless:  # the parser cannot know that the request was a HEAD
            self.on_message_complete()

    def on_body(self, body: bytes) -> None:
        if self._complete:
            self._surplus = True
        elif self.status:  # else the head is none, and what follows it must not reach the agent in the place of one
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
        elif self.status and self._parser is not None and not self._complete:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()
