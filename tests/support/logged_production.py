"""A production model as a process that writes down each byte before it sends it, and misbehaves when told to.

    python logged_production.py PORT LOG ORDERS

LOG gets a line of JSON for each step of an answer, so that what a client got can be compared with it whatever was
killed in between: `{"answer", "prompt", "status"}` at its head, `{"answer", "piece"}` (bytes of the body, as latin-1),
and `{"answer", "whole": true}` right before its last bytes. Each answer names itself in the header `x-answer`. A
`{"way"}` tells that it misbehaved.

ORDERS is a file that is read for each request: one of the `WAYS`, or nothing. A request's header `x-pace: 5x0.02` has
its answer sent in five pieces with 20 ms between them. It speaks HTTP by hand, because most ways are no HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

from bench import poison

WAYS = {
    "too_many": "each answer is a 429",
    "error": "each answer is a 500",
    "truncated": "an answer ends in its middle",
    "reset": "the connection is reset in the middle of an answer",
    "silent": "a request gets no answer",
    "stalled": "an answer stops in its middle",
    "garbage": "the answer is no HTTP",
    "bad_chunk": "the body of an answer is no HTTP",
    "endless": "an answer has no end",
}

_REFUSALS = {"too_many": (429, "Too Many Requests"), "error": (500, "Internal Server Error")}
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no seconds: closing sends a reset."""


class Production:
    """Answers chats; see the module.

    Args:
        name: begins the ids of its answers, so that those of two lives differ.
    """

    def __init__(self, log: Path, orders: Path, name: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._orders = orders
        self._name = name
        self._numbers = itertools.count()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either end leaves it."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                headers, body = await _request(reader)
                if not await self._answer(headers, body, writer):
                    break
        writer.close()

    async def _answer(self, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; returns whether the connection may be used again."""
        way = _told(self._orders)
        if way:
            self._write(way=way)
        number = f"{self._name}-{next(self._numbers)}"
        if way == "silent":
            await asyncio.sleep(3600)
        if way == "garbage":
            writer.write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            await writer.drain()
            return False
        poisoned = poison.said_by(body)  # which is not read here: others wait for their answers meanwhile
        asked = {"messages": [{"role": "user", "content": poisoned[0]}]} if poisoned else json.loads(body)
        prompt = str(asked["messages"][-1]["content"])
        status, reason = _REFUSALS.get(way, (200, "OK"))
        pieces = _pieces(number, prompt, asked, status, *_pace(headers), poisoned[1] if poisoned else {})
        self._write(answer=number, prompt=prompt, status=status, at=time.time())
        kind = "text/event-stream" if asked.get("stream") and status == 200 else "application/json"
        head = f"HTTP/1.1 {status} {reason}\r\nx-answer: {number}\r\ncontent-type: {kind}\r\n"
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        middle = len(pieces) // 2
        for place, piece in enumerate(pieces):
            if place == middle and way in ("truncated", "reset", "stalled", "bad_chunk", "endless"):
                await self._misbehave(way, number, piece, writer)
                return False
            await self._send(number, piece, writer)
            if place + 1 < len(pieces):
                await asyncio.sleep(_pace(headers)[1])
        self._write(answer=number, whole=True, at=time.time())
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _send(self, number: str, piece: bytes, writer: asyncio.StreamWriter) -> None:
        self._write(answer=number, piece=piece.decode("latin-1"))
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()

    async def _misbehave(self, way: str, number: str, piece: bytes, writer: asyncio.StreamWriter) -> None:
        if way == "stalled":
            await asyncio.sleep(3600)
        elif way == "bad_chunk":
            writer.write(b"zz\r\nno chunk\r\n")
        elif way == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        while way == "endless":
            await self._send(number, piece, writer)
            await asyncio.sleep(0.002)

    def _write(self, **step: Any) -> None:
        os.write(self._log, json.dumps(step).encode() + b"\n")


async def _request(reader: asyncio.StreamReader) -> tuple[dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:-2]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head)}
    return headers, await reader.readexactly(int(headers.get("content-length", 0)))


def _told(orders: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return orders.read_text().strip()
    return ""


def _pace(headers: dict[str, str]) -> tuple[int, float]:
    pieces, _, pause = headers.get("x-pace", "1x0").partition("x")
    return int(pieces), float(pause)


def _pieces(
    number: str, prompt: str, asked: dict[str, Any], status: int, pieces: int, pause: float, fields: dict[str, Any]
) -> list[bytes]:
    """The body in pieces. The answer has bytes of every kind: text beyond ASCII is cut amid its characters.

    Args:
        fields: of the choice, where poison wants others.
    """
    if status != 200:
        return [json.dumps({"error": {"message": "scripted", "type": "server_error", "code": None}}).encode()]
    text = f"echo of {prompt}: é 漢字 🙂 " * max(1, pieces // 2)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    reason = "stop"
    if asked["messages"][-1]["role"] == "user" and "use the tool" in prompt:
        function = {"name": "look_up", "arguments": json.dumps({"q": number})}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}],
        }
        reason = "tool_calls"
    base = {"id": f"prod-{number}", "created": int(time.time()), "model": "logged"}
    if asked.get("stream"):
        deltas = [({"role": "assistant"}, None), (message, None), ({}, reason)]
        events = [
            {**base, "object": "chat.completion.chunk"}
            | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            for delta, finish in deltas
        ]
        whole = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events) + "data: [DONE]\n\n"
    else:
        choice = {"index": 0, "message": message, "finish_reason": reason} | fields
        whole = json.dumps({**base, "object": "chat.completion", "choices": [choice]}, ensure_ascii=False)
    body = whole.encode()
    size = max(1, -(-len(body) // max(1, pieces)))
    return [body[start : start + size] for start in range(0, len(body), size)]


async def main() -> None:
    port, log, orders = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    production = Production(log, orders, f"{os.getpid()}.{time.monotonic_ns()}")
    server = await asyncio.start_server(production.serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
