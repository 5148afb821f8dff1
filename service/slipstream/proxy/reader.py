"""Requests out of the bytes that an agent sends: llhttp's parser, and the limits on a request's head."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque

import httptools

from slipstream.http.headers import Headers, has_body
from slipstream.proxy import refusal
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.refusal import Refusal
from slipstream.proxy.request import Request

_SPOKEN = ("1.1", "1.0")
_BETWEEN = len(b": \r\n")


class RequestReader(asyncio.BufferedProtocol, ABC):
    """The half of an agent's connection that reads. The half that sees to the answers inherits from it: between two
    objects each read would be a call more.

    Args:
        gateway: says what is production's, and what the limits are.
    """

    __slots__ = (
        "_arriving",
        "_crowded",
        "_fields_size",
        "_gateway",
        "_headers",
        "_last_read",
        "_limits",
        "_parser",
        "_requests",
        "_target",
    )

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limits = gateway.limits
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        """None once nothing is to be read any more."""
        self._target = b""
        self._headers: Headers = []
        self._fields_size = 0
        """Bytes since the last one that was no head's and no trailer's."""
        self._last_read = 0
        self._arriving: Request | None = None
        """The request whose body is being read."""
        self._requests: deque[Request] = deque()
        """Requests that nothing was done about yet."""
        self._crowded = False
        """There are too many connections; this one is open only to be told so."""

    @abstractmethod
    def _go_on(self) -> None:
        """Requests may have come, or more of the last one."""

    @abstractmethod
    def _head_begins(self) -> None:
        """A part of a head came, and nothing of it before."""

    @abstractmethod
    def _abandon(self) -> bool:
        """The request that was taken out of the row last turns out to be none; returns whether all ends with it."""

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._gateway.read_into

    def buffer_updated(self, nbytes: int) -> None:
        data: memoryview | bytes = self._gateway.read_into[:nbytes]
        while data and self._parser is not None:  # None: what follows a request that could not be read
            self._last_read = size = len(data)
            self._fields_size += size
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._upgraded(data[upgrade.args[0] :])
                continue
            except httptools.HttpParserError as error:
                self._unreadable(refusal.unreadable(error))
            if self._fields_size and self._parser is not None:
                limits = self._limits
                if self._fields_size > limits.header_bytes:
                    self._unreadable(refusal.head_too_large(limits.header_bytes))
                elif len(self._headers) > limits.headers:
                    self._unreadable(refusal.too_many_headers(limits.headers))
                elif self._fields_size == size:
                    self._head_begins()
            self._go_on()
            return

    def _upgraded(self, rest: memoryview | bytes) -> memoryview | bytes:
        """The parser takes what follows the last request's head for another protocol's; returns what is to be read."""
        self._parser = httptools.HttpRequestParser(self)
        request = self._requests[-1]
        if request.http11 and _asks_for(b"h2c", request):
            # Java's HttpClient offers HTTP/2 with each request by default. A server may ignore the offer (RFC 9110,
            # section 7.8); llhttp cannot, and the body would be lost. So the head is read again without it.
            self._requests.pop()
            fields = [b"%b: %b\r\n" % field for field in request.headers if field[0].lower() != b"upgrade"]
            line = b"%b %b HTTP/1.1\r\n" % (request.method, request.target)
            return b"".join((line, *fields, b"\r\n", rest))
        self._go_on()
        return rest if request.keep_alive and not has_body(request.headers) else b""

    def _unreadable(self, why: Refusal) -> None:
        """Refuse what is no request, and read no further."""
        self._parser = None
        arriving, self._arriving = self._arriving, None
        if arriving is not None:
            if self._requests:
                self._requests.pop()
            elif self._abandon():
                return
        request = Request(b"GET", b"/", [], http11=True, keep_alive=False)
        request.refusal = why  # and it stays incomplete: what follows is read, and thrown away, for a while
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
        )
        limits = self._limits
        if version not in _SPOKEN:
            request.refusal, request.keep_alive = refusal.OTHER_VERSION, False
        elif len(self._headers) > limits.headers:
            request.refusal = refusal.too_many_headers(limits.headers)
        elif (self._fields_size > limits.header_bytes or self._last_read > limits.header_bytes) and (
            len(self._target) + sum(len(name) + len(value) + _BETWEEN for name, value in self._headers)
            > limits.header_bytes
        ):
            request.refusal = refusal.head_too_large(limits.header_bytes)
        elif self._crowded:
            request.keep_alive = False
            if self._gateway.is_productions(request):
                request.refusal = refusal.TOO_MANY_CONNECTIONS
        if request.refusal is None and parser.should_upgrade():
            _refuse_upgrade(request)
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


def _refuse_upgrade(request: Request) -> None:
    """Refuse a request that asks for another protocol, where that cannot be ignored."""
    if request.method == b"CONNECT":
        request.refusal, request.keep_alive = refusal.CONNECT, False
    elif _asks_for(b"websocket", request):
        request.refusal, request.keep_alive = refusal.WEBSOCKET, False
    elif has_body(request.headers):
        # The parser takes such a body for another protocol's bytes: production would wait for it and take the
        # connection's next request, another user's, for it.
        request.refusal, request.keep_alive = refusal.UPGRADE, False


def _asks_for(protocol: bytes, request: Request) -> bool:
    return any(name.lower() == b"upgrade" and value.strip().lower() == protocol for name, value in request.headers)
