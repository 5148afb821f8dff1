"""A model for streams: as many events as the request names, so far apart as it names.

Who asks for no stream (a proxy may, in the name of one who did) gets a ready answer after the same time. Arguments: the
port, that answer.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import cast

import uvloop

_PACE = re.compile(rb"events=(\d+) every_ms=(\d+) end")
_STREAMED = re.compile(rb'"stream": ?true')
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(number: int, events: int, stream: int) -> bytes:
    choice = {"index": 0, "delta": {"content": " word"}, "logprobs": None, "finish_reason": None, "token_ids": [1234]}
    if number == events - 1:
        choice["finish_reason"] = "stop"
    said = {
        "id": f"chatcmpl-{stream:024x}",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench-model",
        "choices": [choice],
    }
    if number == 0:
        choice["delta"] = {"role": "assistant", "content": ""}
        said["prompt_token_ids"] = list(range(2000, 2032))
    return _chunk(b"data: " + json.dumps(said).encode() + b"\n\n")


class Stub(asyncio.Protocol):
    """One connection; its requests come one after the other."""

    streams = 0
    answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not (pace := _PACE.search(self._received)) or not self._whole():
            return
        streamed = _STREAMED.search(self._received)
        self._received = b""
        self._events, every_ms = int(pace[1]), int(pace[2])
        self._every = every_ms / 1000
        if not streamed:
            whole = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(self.answer) + self.answer
            wait = self._events * self._every
            self._timer = asyncio.get_running_loop().call_later(
                wait, self._transport.write, b"HTTP/1.1 200 OK\r\n" + whole
            )
            return
        Stub.streams += 1
        first, middle, last = (_event(number, self._events, Stub.streams) for number in (0, 1, self._events - 1))
        self._first, self._middle, self._last = first, middle, last + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self._sent = 0
        self._due = asyncio.get_running_loop().time()
        self._transport.write(_HEAD + self._first)
        self._next()

    def _whole(self) -> bool:
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        return bool(found) and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"))

    def _next(self) -> None:
        self._sent += 1
        if self._sent < self._events:
            self._due += self._every
            self._timer = asyncio.get_running_loop().call_at(self._due, self._send)

    def _send(self) -> None:
        self._transport.write(self._last if self._sent == self._events - 1 else self._middle)
        self._next()


async def main(port: int) -> None:
    """Serve for good."""
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    Stub.answer = sys.argv[2].encode()
    uvloop.run(main(int(sys.argv[1])))
