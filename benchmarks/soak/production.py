"""The production model of the soak: it answers as each request asks, faults included. Argument: the port."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import struct
import sys
from collections.abc import Callable
from typing import cast

import uvloop
from bench import poison

from soak.asked import CUT, Asked, answer, pieces, read

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_numbers = itertools.count()
_IDLE = 30.0
"""Seconds after which a connection without a request is closed: longer than the slowest reader takes to get there."""
_RESET = struct.pack("ii", 1, 0)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_JSON = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_STATUS = {429: b"429 Too Many Requests", 500: b"500 Internal Server Error", 503: b"503 Service Unavailable"}
_REFUSED = b'{"error": {"message": "scripted", "type": "server_error", "code": null, "param": null}}'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Production(asyncio.Protocol):
    """One connection; its requests come one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        self._timer = self._later(_IDLE, self._transport.close)
        self._paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or not (length := _LENGTH.search(head)) or len(body) < int(length[1]):
            return
        self._received = b""
        self._timer.cancel()
        if (asked := read(body)) is not None:
            self._answer(asked)
        elif (poisoned := poison.said_by(body)) is not None:
            body = json.dumps(poison.completion(f"poison-{next(_numbers)}", *poisoned)).encode()
            self._end(_JSON % (b"200 OK", len(body)) + body)

    def _answer(self, asked: Asked) -> None:
        if asked.kind.startswith("status"):
            status = _STATUS[int(asked.kind.removeprefix("status"))]
            self._end(_JSON % (status, len(_REFUSED)) + _REFUSED)
        elif asked.kind == "reset":
            self._break()
        elif asked.streamed:
            self._asked, self._sent, self._due = asked, 0, asyncio.get_running_loop().time()
            event, self._last = pieces(asked)
            self._event = _chunk(event)
            self._transport.write(_STREAM)
            self._next()
        else:
            body = answer(asked.number)
            whole = _JSON % (b"200 OK", len(body)) + body
            if asked.kind == "late":
                self._timer = self._later(asked.every_ms / 1000, lambda: self._end(whole))
            elif asked.kind == "cut":
                self._transport.write(whole[: len(whole) // 2])
                self._timer = self._later(0.01, self._break)  # what was written has left by then
            else:
                self._end(whole)

    def _next(self) -> None:
        if self._asked.kind == "broken" and self._sent >= CUT * self._asked.events:
            self._break()
            return
        if not self._paused:  # as a model whose caller does not read
            self._sent += 1
            if self._sent > self._asked.events:
                self._end(_chunk(self._last) + b"0\r\n\r\n")
                return
            self._transport.write(self._event)
        self._due += self._asked.every_ms / 1000
        self._timer = asyncio.get_running_loop().call_at(self._due, self._next)

    def _end(self, last: bytes) -> None:
        self._transport.write(last)
        self._timer = self._later(_IDLE, self._transport.close)

    def _later(self, seconds: float, what: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, what)

    def _break(self) -> None:
        """Reset the connection."""
        connection: socket.socket = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._transport.abort()


async def main(port: int) -> None:
    """Serve for good."""
    server = await asyncio.get_running_loop().create_server(Production, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
