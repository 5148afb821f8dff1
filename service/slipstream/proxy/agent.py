"""The agent's side: an HTTP/1.1 server's connection, on asyncio with llhttp's parser.

A web framework's request, task and queues would cost more than everything else the proxy does. What HTTP asks of a
server is here; what becomes of a request is `Forward`'s.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import cast

import httptools

from slipstream.proxy.connection import write
from slipstream.proxy.deadline import Deadline
from slipstream.proxy.forward import Forward
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.headers import Headers, has_body
from slipstream.proxy.limits import PROGRESS, Refusal
from slipstream.proxy.request import Request

_NEVER = float("inf")

_REST_WITHIN = 5.0
"""Seconds for the rest of a request that was answered before it was there; it is read and thrown away, because a
connection that is closed over unread bytes is reset, and the answer may be lost with it."""

_MOST_AHEAD = 32
_MOST_BYTES_AHEAD = 64 * 1024
"""Requests, and bytes of their bodies, that wait for the answers before theirs."""

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    403: b"Forbidden",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    501: b"Not Implemented",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


_BETWEEN = len(b": \r\n")

_OTHER_VERSION = Refusal(505, "invalid_request", "HTTP/1.1 and HTTP/1.0 are spoken here.")

_TOO_MANY_CONNECTIONS = Refusal(
    503,
    "too_many_connections",
    "The sidecar has as many connections open as it may (limits.connections); try again.",
    kind="server_error",
)


class AgentConnection(asyncio.Protocol):
    """One connection of an agent; its requests are answered one after another.

    Args:
        gateway: says where a request goes, and knows all connections.
    """

    __slots__ = (
        "_arriving",
        "_close_after",
        "_crowded",
        "_deadline",
        "_fields_size",
        "_forward",
        "_gateway",
        "_headers",
        "_last_read",
        "_limits",
        "_parser",
        "_paused",
        "_reading",
        "_requests",
        "_takes_answers",
        "_target",
        "_transport",
        "_unwanted",
    )

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limits = gateway.limits
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._deadline = Deadline(asyncio.get_running_loop(), self._too_slow)
        self._target = b""
        self._headers: Headers = []
        self._fields_size = 0
        """Bytes since the last one that was no head's and no trailer's."""
        self._last_read = 0
        self._arriving: Request | None = None
        """The request whose body is being read."""
        self._requests: deque[Request] = deque()
        """Requests that wait for the answers before theirs."""
        self._forward: Forward | None = None
        self._unwanted: Request | None = None
        """A request that was answered before all of it was here."""
        self._close_after = False
        self._reading = True
        self._paused = False
        """Reading stood still at some time since the body's progress was last looked at."""
        self._takes_answers = True
        self._crowded = False
        """It is open only to be told that there are too many."""

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        admitted = self._gateway.admits(self)
        if not admitted:
            self._gateway.refused("connections")
            self._crowded = True
        if admitted is None:
            self._transport.abort()
        else:
            self._deadline.set(self._limits.keep_alive if admitted else _REST_WITHIN)

    def data_received(self, data: bytes) -> None:
        if self._parser is None:  # what follows a request that could not be read
            return
        self._last_read = size = len(data)
        self._fields_size += size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._unreadable(Refusal(400, "invalid_request", f"The request cannot be read: {error}."))
        if self._fields_size and self._parser is not None:
            limits = self._limits
            if self._fields_size > limits.header_bytes:
                self._unreadable(_head_too_large(limits.header_bytes))
            elif len(self._headers) > limits.headers:
                self._unreadable(_too_many_headers(limits.headers))
            elif self._fields_size == size and self._forward is None and not self._requests:
                self._deadline.set(limits.header_timeout)  # once: bytes that trickle in do not move it
        self._go_on()

    def eof_received(self) -> None:
        return None  # closes the connection: an agent that can send no more is taken for one that has gone

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._parser = None
        self._requests.clear()
        self._deadline.end()
        self._gateway.gone(self)
        if self._forward is not None:
            self._forward.agent_gone()
            self._forward = None

    def pause_writing(self) -> None:
        self._takes_answers = False
        self._deadline.set(self._limits.answer_timeout)
        if self._forward is not None:
            self._forward.agent_takes(False)

    def resume_writing(self) -> None:
        self._takes_answers = True
        self._wait()
        if self._forward is not None:
            self._forward.agent_takes(True)
        else:
            self._go_on()

    # What `Forward` asks for

    def send(self, head: bytes, pieces: Sequence[bytes]) -> None:
        """Send a part of an answer; an agent that has gone swallows it, and `agent_gone` tells."""
        if self._transport is not None and (head or pieces):
            write(self._transport, head, pieces)

    def reply(self, request: Request, status: int, body: bytes, fields: bytes = b"") -> None:
        """Send a whole answer of the proxy's own, in JSON; `fields` are further lines of its head."""
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n"
        head %= (status, _REASONS[status], len(body), fields, self.closing(request))
        self.send(head, () if request.method == b"HEAD" else (body,))

    def closing(self, request: Request) -> bytes:
        """The header field that tells the agent what becomes of its connection after this answer."""
        if self._gateway.stopping or not request.keep_alive:
            self._close_after = True
            return b"connection: close\r\n"
        return b"" if request.http11 else b"connection: keep-alive\r\n"

    def cut(self) -> None:
        """Break off an answer that has started: without its end no caller takes it for the whole."""
        self._forward = None
        self._parser = None
        self._close()

    def peer(self) -> str:
        """The address at the other end, without its port; empty where it is gone."""
        return "" if self._transport is None else str((self._transport.get_extra_info("peername") or ("",))[0])

    def takes_request(self, takes: bool) -> None:
        """Read on, or leave what comes in the kernel's hands for now."""
        if self._transport is not None and takes is not self._reading:
            self._reading = takes
            if takes:
                self._transport.resume_reading()
            else:
                self._paused = True
                self._transport.pause_reading()

    def answered(self) -> None:
        """The answer to the request under way has been sent."""
        forward, self._forward = self._forward, None
        assert forward is not None  # it is the one that says so
        if self._transport is None:
            return
        if self._gateway.stopping and not self._requests:
            self._close_after = True  # this answer's head may have left before
        if not forward.request.complete:
            self._unwanted = forward.request
            self.takes_request(True)
            self._deadline.set(_REST_WITHIN)
            if self._close_after and not self._transport.is_closing():
                self._transport.write_eof()  # the agent need not wait for the end of that time
        elif self._close_after:
            self._close()
        elif self._requests:
            # Not from here: a row of requests that came at once would be as many calls within each other.
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            if not self._reading:
                self.takes_request(True)
            self._wait()

    @property
    def idle_until(self) -> float:
        """When it is closed for standing idle, the loop's time; infinite where it does not."""
        if self._forward is not None or self._requests or self._arriving is not None or self._fields_size:
            return _NEVER
        return _NEVER if self._transport is None or self._transport.is_closing() else self._deadline.at

    def stop(self) -> None:
        """Close the connection as soon as nothing is under way on it."""
        if self._forward is None and not self._requests and self._arriving is None:
            self._close()

    def abort(self) -> None:
        """Close the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # Requests

    def _go_on(self) -> None:
        """Send on what has arrived."""
        forward = self._forward
        if forward is None:
            if self._unwanted is not None and not self._rest_is_here(self._unwanted):
                return
            if not self._requests or self._close_after or not self._takes_answers or self._transport is None:
                return
            request = self._requests.popleft()
            if not self._reading:  # because of the requests behind it, of which one may still be arriving
                self.takes_request(True)
            self._forward = forward = Forward(self, request, self._gateway)
            forward.start()
            if not request.complete and self._forward is forward:
                self._paused = not self._reading  # while production is being connected to
                self._wait()
        elif not forward.sent:
            forward.more()
        if self._requests and self._far_ahead():
            self.takes_request(False)  # an agent that sends requests ahead can wait

    def _far_ahead(self) -> bool:
        """Whether too much waits to read on; until then that the agent leaves is heard of."""
        waiting = sum(len(piece) for request in self._requests for piece in request.pieces)
        return len(self._requests) > _MOST_AHEAD or waiting > _MOST_BYTES_AHEAD

    def _upgraded(self, rest: bytes) -> None:
        """The parser takes what follows the last request's head for another protocol's."""
        self._parser = httptools.HttpRequestParser(self)
        request = self._requests[-1]
        if request.http11 and _offers_h2c(request):
            # Java's HttpClient offers HTTP/2 with each request by default. A server may ignore the offer (RFC 9110,
            # section 7.8); llhttp cannot, and the body would be lost. So the head is read again without it.
            self._requests.pop()
            fields = [b"%b: %b\r\n" % field for field in request.headers if field[0].lower() != b"upgrade"]
            line = b"%b %b HTTP/1.1\r\n" % (request.method, request.target)
            self.data_received(b"".join((line, *fields, b"\r\n", rest)))
            return
        self._go_on()
        if rest and request.keep_alive and not has_body(request.headers):
            self.data_received(rest)

    def _rest_is_here(self, request: Request) -> bool:
        """Throw away what comes of a request that is answered already; returns whether that was all."""
        request.pieces.clear()
        if not request.complete:
            return False
        self._unwanted = None
        self._wait()
        if self._close_after:
            self._close()
        return True

    def _wait(self) -> None:
        """Set the limit on what is waited for now."""
        if not self._takes_answers:
            self._deadline.set(self._limits.answer_timeout)
        elif self._forward is None:
            self._deadline.set(self._limits.keep_alive)
        elif self._forward.request.complete:
            self._deadline.clear()
        else:
            self._deadline.set(self._limits.body_timeout)

    def _close(self) -> None:
        """Close the connection once what was written has left, for which the agent has as long as to read an answer."""
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                self._deadline.set(self._limits.answer_timeout)

    def _too_slow(self) -> None:
        transport, forward, limits = self._transport, self._forward, self._limits
        if transport is None:
            return
        if not self._takes_answers or transport.is_closing():
            self._gateway.refused("answer_timeout")
            transport.abort()
        elif forward is not None:
            if forward.request.complete:
                return
            if forward.goes_on() or self._paused:
                self._paused = not self._reading
                self._deadline.set(limits.body_timeout)
            else:
                text = f"Less than {PROGRESS} bytes of the request's body came within {limits.body_timeout:g} s."
                forward.refuse(Refusal(408, "too_slow", f"{text} (limits.body_timeout)", "body_timeout"))
        elif self._fields_size and self._unwanted is None and self._parser is not None:
            text = f"The request's head did not come within {limits.header_timeout:g} s (limits.header_timeout)."
            self._unreadable(Refusal(408, "too_slow", text, "header_timeout"))
            self._go_on()
        else:
            self._close()

    def _unreadable(self, refusal: Refusal) -> None:
        """Refuse what is no request, and read no further."""
        self._parser = None
        arriving, self._arriving = self._arriving, None
        forward = self._forward
        if arriving is not None and self._requests:
            self._requests.pop()
        elif arriving is not None and forward is not None:
            self._forward = None
            if forward.abandon():
                self.cut()
                return
        request = Request(b"GET", b"/", [], http11=True, keep_alive=False, odd=True)
        request.refusal = refusal  # and it stays incomplete: what follows is read, and thrown away, for a while
        self._requests.append(request)  # the answers to what came before it go out first

    # The parser's callbacks

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._arriving is None:  # after the head these are trailers, which are dropped
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None  # for the type checker
        version = parser.get_http_version()
        self._arriving = request = Request(
            parser.get_method(),
            self._target,
            self._headers,
            http11=version == "1.1",
            keep_alive=parser.should_keep_alive(),
            odd=parser.should_upgrade() or version not in ("1.1", "1.0"),
        )
        limits = self._limits
        if request.odd and version not in ("1.1", "1.0"):
            request.refusal, request.keep_alive = _OTHER_VERSION, False
        elif len(self._headers) > limits.headers:
            request.odd, request.refusal = True, _too_many_headers(limits.headers)
        elif (self._fields_size > limits.header_bytes or self._last_read > limits.header_bytes) and (
            len(self._target) + sum(len(name) + len(value) + _BETWEEN for name, value in self._headers)
            > limits.header_bytes
        ):
            request.odd, request.refusal = True, _head_too_large(limits.header_bytes)
        elif self._crowded:
            request.keep_alive = False
            if self._gateway.is_productions(request):
                request.odd, request.refusal = True, _TOO_MANY_CONNECTIONS
        self._requests.append(request)
        self._target = b""
        self._headers = []
        self._fields_size = 0

    def on_body(self, body: bytes) -> None:
        self._fields_size = 0
        if self._arriving is not None:
            self._arriving.pieces.append(body)

    def on_message_complete(self) -> None:
        request = self._arriving
        if request is None:
            return
        request.complete = True
        request.received_at = time.perf_counter()
        self._arriving = None
        self._fields_size = 0


def _offers_h2c(request: Request) -> bool:
    return any(name.lower() == b"upgrade" and value.strip().lower() == b"h2c" for name, value in request.headers)


def _head_too_large(most: int) -> Refusal:
    text = f"The request's head, or its trailers, are longer than {most} bytes (limits.header_bytes)."
    return Refusal(431, "head_too_large", text, "header_bytes")


def _too_many_headers(most: int) -> Refusal:
    text = f"The request has more than {most} header fields (limits.headers)."
    return Refusal(431, "too_many_headers", text, "headers")
