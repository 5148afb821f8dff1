"""The lane as an upstream, and one try to have it answer a request.

Until a 2xx answer has begun, with the first byte of its body, nothing has been sent to the agent. So whatever goes
wrong before that, the request can still go to production. The lane gets no field of a request but a few that say what
the agent reads: no credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl

from slipstream.http.connect import Connector
from slipstream.http.connection import Connection
from slipstream.http.errors import Cause, UpstreamError
from slipstream.http.headers import Headers
from slipstream.http.pool import Pool
from slipstream.http.receiver import Receiver
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.request import Request
from slipstream.proxy.route import Route
from slipstream.proxy.serving_metrics import FallbackCause
from slipstream.settings.serving import Lane as LaneSettings

_PASSED_ON = frozenset(
    {b"accept", b"accept-encoding", b"accept-language", b"content-type", b"user-agent", b"traceparent"}
)

_NO_ENVIRONMENT: Mapping[str, str] = {}
"""A proxy from the environment must not stand between the sidecar and its lane."""

_CAUSES: dict[Cause, FallbackCause] = {
    "connect": "connect",
    "connect_timeout": "timeout",
    "first_byte_timeout": "timeout",
    "idle_timeout": "timeout",
    "closed": "closed",
    "protocol": "protocol",
    "redirect": "status",
}

_REFUSED = (400, 413, 422)
"""Statuses by which a server that is well says that something is wrong with the request."""


@dataclass(frozen=True, slots=True)
class _Limits:
    first_byte_timeout: float
    idle_timeout: float


class Lane:
    """A server of a version.

    Args:
        first_byte_timeout: seconds until its answer has begun, a connection that is opened included.

    Attributes:
        base_url: as configured.
        route: its connections.
    """

    def __init__(self, settings: LaneSettings, first_byte_timeout: float, metrics: ProxyMetrics) -> None:
        self.base_url = settings.base_url
        self.first_byte_timeout = first_byte_timeout
        url = urlsplit(str(AnyHttpUrl(settings.base_url)))  # by way of pydantic: all ASCII, however it was written
        target, host = url.path.rstrip("/").encode("ascii"), url.netloc.encode("ascii")
        self._line = b"POST %b/chat/completions HTTP/1.1\r\nhost: %b\r\n" % (target, host)
        connector = Connector(settings.base_url, settings.connect_timeout, _NO_ENVIRONMENT)
        limits = _Limits(first_byte_timeout, settings.idle_timeout)
        pool = Pool(connector, settings.idle_timeout)
        self.route = Route("The serving lane", pool, limits, _no_head, metrics, tapped=True, own={})

    def head(self, headers: Headers, size: int) -> bytes:
        """The head of a request with a body of so many bytes."""
        passed = [b"%b: %b\r\n" % field for field in headers if field[0].lower() in _PASSED_ON]
        return b"".join((self._line, *passed, b"content-length: %d\r\n\r\n" % size))


def _no_head(request: Request) -> tuple[bytes, bool]:
    raise NotImplementedError("requests go to the lane by LaneAttempt")


class Asker(Receiver, Protocol):
    """Waits for the lane's answer to a request, and takes it over once it has begun."""

    def may_ask(self) -> bool:
        """Return whether the lane may still be asked; called at the last moment before the request is sent."""
        ...

    def lane_answers(self, connection: Connection, pieces: list[bytes], ends: bool) -> None:
        """A 2xx has begun, with these pieces of its body. What follows comes to this object itself."""
        ...

    def lane_failed(self, cause: FallbackCause, detail: str) -> None:
        """The lane gives no answer to this request."""
        ...


class LaneAttempt:
    """One request on its way to the lane, until its answer begins.

    Args:
        head, body: as they leave.
    """

    __slots__ = ("_asker", "_body", "_connection", "_fresh", "_head", "_lane", "_opening", "_timer")

    def __init__(self, lane: Lane, asker: Asker, head: bytes, body: bytes) -> None:
        self._lane = lane
        self._asker = asker
        self._head = head
        self._body = body
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._fresh = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send it, over a kept connection if there is one."""
        self._timer = asyncio.get_running_loop().call_later(self._lane.first_byte_timeout, self._too_slow)
        connection = self._lane.route.pool.kept()
        if connection is None:
            self._open()
        else:
            self._send(connection)

    def cancel(self) -> None:
        """Give it up; its asker hears nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # The connection says

    def answer(self, starts: bool, pieces: list[bytes], ends: bool) -> None:
        connection = self._connection
        assert connection is not None  # it is the one that calls
        if not 200 <= connection.status < 300:
            if ends:
                self._connection = None  # the pool has it
            self._fail("refused" if connection.status in _REFUSED else "status", f"it answered {connection.status}")
            return
        if not pieces and not ends:
            return  # a server may send the head before its model has said anything, and the model may hang
        self._connection = None
        if not pieces:
            self._fail("protocol", f"an empty answer with the status {connection.status}")
            return
        self.cancel()
        if not ends:
            connection.hand_over_to(self._asker)
        self._asker.lane_answers(connection, pieces, ends)

    def failed(self, error: UpstreamError) -> None:
        connection, self._connection = self._connection, None
        if error.cause == "closed" and connection is not None and not connection.answered and not self._fresh:
            self._open()  # as connections are closed that stood idle
            return
        self._fail(_CAUSES[error.cause], str(error))

    def may_send(self, may: bool) -> None:
        """The request is sent whole, whatever the lane takes of it at a time; its answer has one limit of time."""

    # On the way there

    def _open(self) -> None:
        self._fresh = True
        self._opening = asyncio.get_running_loop().create_task(self._opened())

    async def _opened(self) -> None:
        try:
            connection = await self._lane.route.pool.opened()
        except UpstreamError as error:
            self._opening = None
            self._fail(_CAUSES[error.cause], str(error))
            return
        self._opening = None
        self._send(connection)

    def _send(self, connection: Connection) -> None:
        if not self._asker.may_ask():
            connection.close()
            self._fail("stopped", "it may not be asked any more")
            return
        self._connection = connection
        connection.begin(self, bodiless=False)
        connection.send(self._head, [self._body])

    def _too_slow(self) -> None:
        self._fail("timeout", f"no answer began within {self._lane.first_byte_timeout:g} s")

    def _fail(self, cause: FallbackCause, detail: str) -> None:
        self.cancel()
        self._asker.lane_failed(cause, detail)
