"""The connections to one upstream: kept between exchanges, the one used last first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import structlog

from slipstream.http.connection import Connection
from slipstream.http.errors import UpstreamError
from slipstream.http.remainder import Remainder

_log = structlog.get_logger(__name__)

IDLE_LIFE = 4.0
"""Seconds that an idle connection is kept: below the 5 s after which uvicorn, and so vLLM, closes its own end. A POST
that meets a closing connection cannot be sent again, because the model may have begun to answer it."""


class Opener(Protocol):
    """Opens connections to one upstream; `connect.Connector` does."""

    async def open(self, protocol: Callable[[], Connection]) -> Connection:
        """A new connection.

        Raises:
            UpstreamError: there is none.
        """
        ...


class Pool:
    """Connections to one upstream, as many as there are exchanges at once.

    Args:
        idle_timeout: seconds without a byte in mid-answer after which an exchange fails.
        keeps: False to close each connection after its exchange.
    """

    def __init__(self, opener: Opener, idle_timeout: float, *, keeps: bool = True) -> None:
        self._opener = opener
        self._idle_timeout = idle_timeout
        self._keeps = keeps
        self._idle: list[Connection] = []
        self._remainders: set[Remainder] = set()

    def kept(self) -> Connection | None:
        """The idle connection that was used last, if it is young enough; those below it are older still."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.open:
                continue
            if time.monotonic() - connection.idle_since < IDLE_LIFE:
                return connection
            connection.close()
        return None

    async def opened(self) -> Connection:
        """A new connection.

        Raises:
            UpstreamError: there is none.
        """
        try:
            return await self._opener.open(lambda: Connection(self._idle_timeout, self._keep, self._forget))
        except UpstreamError:
            raise
        except Exception as error:  # whatever it is, who asked for it must not wait for ever
            _log.exception("connection_not_opened")
            raise UpstreamError("connect", f"no connection: {error}") from error

    def read_on(self, connection: Connection) -> None:
        """Read the rest of an answer whose caller has left with its end, so that the connection can be kept."""
        self._remainders.add(Remainder(connection, self._remainders.discard))

    @property
    def idle(self) -> int:
        """Return how many idle connections are kept."""
        return len(self._idle)

    def close(self) -> None:
        """Close the kept connections, and those whose answers only have to end."""
        for remainder in list(self._remainders):
            remainder.close()
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _keep(self, connection: Connection) -> None:
        if not self._keeps:
            connection.close()
            return
        idle = self._idle
        connection.idle_since = now = time.monotonic()
        idle.append(connection)
        # Steady traffic uses the newest only: what a burst left below it would stay open as long as production allows.
        if len(idle) > 1 and now - idle[0].idle_since >= IDLE_LIFE:
            idle.pop(0).close()

    def _forget(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)
