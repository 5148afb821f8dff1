"""Asking the Explorer over the proxy's own connections, with `await`: answers are read in pieces, as they arrive.

Off the hot path a task may wait, so the callbacks of `proxy.connection` end in an event here. httpx would decode and
re-frame a stream that is to be passed on as it is, and takes five times as much CPU for a whole answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl

from slipstream.http.connect import ClientTls, Connector
from slipstream.http.connection import Connection
from slipstream.http.errors import UpstreamError
from slipstream.http.headers import Headers
from slipstream.http.pool import Pool

_BUFFERED = 64 * 1024
"""Body bytes that wait for a slow reader before the Explorer is held back."""

_NO_ENVIRONMENT: Mapping[str, str] = {}
"""A proxy from the environment must not stand between the sidecar and its Explorer."""


class NotConnected(UpstreamError):
    """A request was to go over a kept connection, and there is none. Nothing was sent."""


class ExplorerHttp:
    """Sends requests to `base_url`, over kept connections where there are any.

    Args:
        connect_timeout: seconds.
        timeout: seconds for the first byte of an answer, and between two of its pieces.
    """

    def __init__(self, base_url: str, *, connect_timeout: float, timeout: float, tls: ClientTls | None = None) -> None:
        url = urlsplit(str(AnyHttpUrl(base_url)))
        self._pool = Pool(Connector(base_url, connect_timeout, _NO_ENVIRONMENT, tls), timeout)
        self._timeout = timeout
        self._prefix = url.path.rstrip("/").encode("ascii")
        self._host: Headers = [(b"host", url.netloc.encode("ascii"))]

    async def send(
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        body: bytes,
        *,
        allowed: Callable[[], None] | None = None,
        connected: bool = False,
    ) -> Response:
        """Send a request and wait for the head of its answer, whose `close` must be called.

        Args:
            allowed: called at the last moment, with a connection at hand; what it raises keeps the request from being
                sent.
            connected: open no connection for it.

        Raises:
            NotConnected: it was not sent, because no connection is kept.
            UpstreamError: there is no answer.
        """
        fields = b"".join(b"%b: %b\r\n" % field for field in [*self._host, *headers])
        connection = self._pool.kept()
        if connection is None:
            if connected:
                raise NotConnected("closed", "no connection is kept")
            connection = await self._pool.opened()
        if allowed is not None:
            try:
                allowed()
            except BaseException:
                connection.close()
                raise
        response = Response(connection)
        connection.begin(response, bodiless=method == b"HEAD")
        connection.send(b"%b %b%b HTTP/1.1\r\n%b\r\n" % (method, self._prefix, target, fields), [body] if body else [])
        connection.within(self._timeout, "first_byte_timeout")
        try:
            await response.head()
        except BaseException:
            response.close()
            raise
        return response

    def close(self) -> None:
        """Close the kept connections."""
        self._pool.close()


class Response:
    """An answer whose head is there.

    Attributes:
        status, headers: names in lower case.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._news = asyncio.Event()
        self._pieces: list[bytes] = []
        self._error: UpstreamError | None = None
        self._ended = False
        self.status = 0
        self.headers: Headers = []

    @property
    def at_end(self) -> bool:
        """The whole body was received and read."""
        return self._ended and not self._pieces

    async def head(self) -> None:
        """Wait for the head.

        Raises:
            UpstreamError: it does not come.
        """
        while not self.status:
            await self._wait()

    async def read(self) -> bytes:
        """The body bytes that arrived since the last read; waits for some; b"" only at the end.

        Raises:
            UpstreamError: the body will not come to its end.
        """
        while not self._pieces and not self._ended:
            await self._wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        if self._connection is not None:
            self._connection.go_on()
        return data

    def close(self) -> None:
        """Break off an answer that was not received to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._news.clear()
        await self._news.wait()

    # The connection says

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        connection = self._connection
        if connection is not None and starts:
            self.status = connection.status
            self.headers = [(name.lower(), value) for name, value in connection.headers]
        self._pieces += pieces
        if ends:
            self._ended = True
            self._connection = None
        elif connection is not None and sum(map(len, self._pieces)) > _BUFFERED:
            connection.hold()
        self._news.set()

    def failed(self, error: UpstreamError) -> None:
        self._connection = None
        self._error = error
        self._news.set()

    def may_send(self, may: bool) -> None:
        """The request is sent whole, whatever the Explorer takes of it at a time."""
