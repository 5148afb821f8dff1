"""What agents hold: a connection that asks one thing after the other, and a stream that is read to its end or left."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import cast

import httptools

from soak.asked import LEFT, Asked, pieces, request

_PAUSE = 10.0
"""Seconds that a slow reader does not read."""


class Connection(asyncio.Protocol):
    """One connection of an agent; a request at a time.

    Args:
        idle: where it is to be found while it has none.
    """

    def __init__(self, idle: list[Connection]) -> None:
        self._idle = idle
        self._done: Callable[[int | None, bytes], None] | None = None
        self.open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, asked: bytes, done: Callable[[int | None, bytes], None]) -> None:
        """Send a request; `done` gets the status and the body, or None where the connection ended before that."""
        self._done, self._body = done, bytearray()
        self._parser = httptools.HttpResponseParser(self)
        self.transport.write(asked)

    def data_received(self, data: bytes) -> None:
        if self._done is not None:
            self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.should_keep_alive():
            self._idle.append(self)
        else:
            self.open = False
            self.transport.close()
        self._end(self._parser.get_status_code(), bytes(self._body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._end(None, b"")

    def _end(self, status: int | None, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)


class Stream(asyncio.Protocol):
    """One answer that comes in events, read to its end or to where its client leaves."""

    def __init__(self, kind: str, asked: Asked, ended: Callable[[Stream, str], None]) -> None:
        self._kind, self._asked, self._ended = kind, asked, ended
        self._sum, self._bytes = 0, 0
        self._whole = self._paused = self.began = False
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(request(self._asked))

    def data_received(self, data: bytes) -> None:
        self.began = True
        self._parser.feed_data(data)
        event, _ = pieces(self._asked) if self._kind == "leaves" else (b"", b"")
        if event and self._bytes >= LEFT * self._asked.events * len(event):
            self._transport.abort()
        elif self._kind == "slow" and not self._paused:
            self._paused = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(_PAUSE, self._transport.resume_reading)

    def on_body(self, body: bytes) -> None:
        self._sum, self._bytes = zlib.crc32(body, self._sum), self._bytes + len(body)

    def on_message_complete(self) -> None:
        self._whole = True
        self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        event, last = pieces(self._asked)
        if self._kind == "leaves":
            outcome = "stream left by its client"
        elif self._whole and self._parser.get_status_code() != 200:
            outcome = f"unexpected: stream {self._parser.get_status_code()}"
        elif not self._whole:
            outcome = "stream cut by production" if self._kind == "broken" else f"unexpected: {self._kind} stream cut"
        elif self._sum == zlib.crc32(event * self._asked.events + last):
            outcome = f"{self._kind} stream whole"
        else:
            outcome = f"unexpected: {self._kind} stream with other bytes"
        self._ended(self, outcome)
