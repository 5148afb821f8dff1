"""The production model as the proxy sees it: `Upstream` is the seam, `HttpUpstream` the way over HTTP/1.1.

The client is our own because the libraries change what they carry. aiohttp comes closest, yet it writes header bytes
that are not UTF-8 as other bytes, gives a POST without a body a `content-length: 0`, loses received bytes when the
connection dies right behind them, and costs twice the CPU.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl

from slipstream.config.settings import Production
from slipstream.errors import ConfigError
from slipstream.proxy.connect import Connector
from slipstream.proxy.headers import Headers, request_headers
from slipstream.proxy.http1 import Connection, UpstreamError

Body = bytes | AsyncIterator[bytes]
"""A request body: in one piece, or piece by piece as it arrives."""

IDLE_LIFE = 4.0
"""Seconds that an idle connection is kept: below the 5 s after which uvicorn, and so vLLM, closes its own end. A POST
that meets a closing connection cannot be sent again, because the model may have begun to answer it."""

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})


class Response(Protocol):
    """A response whose head is there. `close` must be called; it breaks off a body that was not read to its end."""

    status: int
    headers: Headers
    sent_at: float
    head_at: float
    connecting: float | None

    @property
    def at_end(self) -> bool: ...

    async def read(self) -> bytes: ...

    def close(self) -> None: ...


class Upstream(Protocol):
    """Where production traffic goes."""

    async def send(self, method: str, target: bytes, headers: Headers, body: Body) -> Response: ...

    def close(self) -> None: ...


class HttpUpstream:
    """Sends requests to `production.base_url`, over kept connections where there are any.

    TLS certificates and host names are verified against the system's authorities (`SSL_CERT_FILE` replaces them).
    The environment's proxies are used (`connect.Connector`). Redirects are not followed, cookies not kept.
    """

    def __init__(self, production: Production) -> None:
        url = urlsplit(str(AnyHttpUrl(production.base_url)))  # by way of pydantic: all ASCII, however it was written
        self._connector = Connector(production.base_url, production.connect_timeout, os.environ)
        self._host = url.netloc.encode("ascii")
        self._path = url.path.rstrip("/").encode("ascii")
        self._limits = production
        self._authorization = None if production.api_key is None else _bearer(production.api_key.get_secret_value())
        self._idle: dict[Connection, float] = {}

    async def send(self, method: str, target: bytes, headers: Headers, body: Body) -> HttpResponse:
        """Send a request and wait for the head of its response.

        Args:
            target: path below `base_url` with its query, as raw bytes: `/chat/completions?x=1`.
            headers: the caller's, unfiltered.

        Raises:
            UpstreamError: there is no response.
        """
        whole = self._path + target
        if not whole.startswith(b"/"):  # neither has a path: `base_url` is a bare host and the request was for /v1
            whole = b"/" + whole
        if self._connector.absolute_form:
            whole = b"http://" + self._host + whole
        for_proxy = self._connector.proxy_authorization
        head = b"".join(
            [
                method.encode("ascii") + b" " + whole + b" HTTP/1.1\r\n",
                b"" if for_proxy is None else b"proxy-authorization: " + for_proxy + b"\r\n",
                *[b"%b: %b\r\n" % field for field in request_headers(headers, self._host, self._authorization)],
                b"\r\n",
            ]
        )
        kept = self._kept_connection()
        if kept is not None:
            try:
                return await self._exchange(kept, None, method, head, headers, body)
            except UpstreamError as error:
                # Closed without a byte, as connections are that stood idle. What is idempotent may be sent once more.
                resendable = error.cause == "closed" and not kept.answered and method in _IDEMPOTENT
                if not (resendable and isinstance(body, bytes)):
                    raise
        before = time.perf_counter()
        fresh = await self._connect()
        return await self._exchange(fresh, time.perf_counter() - before, method, head, headers, body)

    def close(self) -> None:
        """Close the kept connections."""
        for connection in list(self._idle):
            connection.close()

    async def _exchange(
        self, connection: Connection, connecting: float | None, method: str, head: bytes, headers: Headers, body: Body
    ) -> HttpResponse:
        connection.begin(method)
        response = HttpResponse(connection, connecting, self._limits.idle_timeout, self._keep)
        framed = _chunk if any(name == b"transfer-encoding" for name, _ in headers) else _as_it_is
        try:
            if isinstance(body, bytes):
                connection.write(head + framed(body) + (framed(b"") if body else b""))
                response.sent_at = time.perf_counter()
                connection.within(self._limits.first_byte_timeout, "first_byte_timeout")
            else:
                connection.write(head)
                response.upload = asyncio.create_task(self._upload(response, body, framed))
            response.status = await connection.head()
        except BaseException:
            response.close()
            raise
        response.headers = connection.headers
        response.head_at = connection.head_at
        return response

    async def _upload(
        self, response: HttpResponse, body: AsyncIterator[bytes], framed: Callable[[bytes], bytes]
    ) -> None:
        """Send a body as it arrives. A slow caller has all the time it wants, a slow upstream has not."""
        connection = response.connection
        async for piece in body:
            connection.write(framed(piece))
            if connection.status is None:
                connection.within(self._limits.idle_timeout, "idle_timeout")
            await connection.drain()
            if connection.status is None:
                connection.no_limit()
        connection.write(framed(b""))
        response.sent_at = time.perf_counter()
        if connection.status is None:
            connection.within(self._limits.first_byte_timeout, "first_byte_timeout")

    async def _connect(self) -> Connection:
        return await self._connector.open(lambda: Connection(self._forget))

    def _kept_connection(self) -> Connection | None:
        """The connection that was used last, if it is young enough; those below it are older still."""
        while self._idle:
            connection, since = self._idle.popitem()
            if not connection.open:
                continue
            if time.monotonic() - since < IDLE_LIFE:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        now = time.monotonic()
        self._idle[connection] = now
        # Steady traffic uses the newest only: what a burst left below it would stay open as long as production allows.
        oldest, since = next(iter(self._idle.items()))
        if now - since >= IDLE_LIFE and oldest is not connection:
            oldest.close()
            self._forget(oldest)

    def _forget(self, connection: Connection) -> None:
        self._idle.pop(connection, None)


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)  # the empty one is the end


def _as_it_is(piece: bytes) -> bytes:
    return piece


def _bearer(key: str) -> bytes:
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("production.api_key: printable ASCII characters without a line break; found others")
    return f"Bearer {key}".encode("ascii")


class HttpResponse:
    """A response of `HttpUpstream`.

    Attributes:
        sent_at, head_at: `time.perf_counter()` when the request's last byte was handed to the connection, and when
            the response's head was there.
        connecting: seconds that a new connection took; None on a kept one.
    """

    def __init__(
        self,
        connection: Connection,
        connecting: float | None,
        idle_timeout: float,
        keep: Callable[[Connection], None],
    ) -> None:
        self.connection = connection
        self.connecting = connecting
        self.upload: asyncio.Task[None] | None = None
        self.status = 0
        self.headers: Headers = []
        self.sent_at = 0.0
        self.head_at = 0.0
        self._idle_timeout = idle_timeout
        self._keep = keep

    @property
    def at_end(self) -> bool:
        """The whole body was received and read."""
        return self.connection.at_end

    async def read(self) -> bytes:
        """The body bytes that arrived since the last read; waits for some; b"" only at the end.

        Raises:
            UpstreamError: the body will not come to its end.
        """
        return await self.connection.read(self._idle_timeout)

    def close(self) -> None:
        """Keep the connection if the exchange is over in both directions, else break it off."""
        sent = self.upload is None or self.upload.done()
        if self.upload is not None:
            self.upload.cancel()
        if sent and self.at_end and self.connection.reusable and self.connection.open:
            self._keep(self.connection)
        else:
            self.connection.close()
