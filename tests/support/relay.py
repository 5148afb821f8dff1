"""A TCP relay between two parts, which does to their connections what networks and bad peers do."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

WAYS = {
    "refused": "a connection is closed as soon as it was opened",
    "black_hole": "what is sent goes nowhere, from the middle of an answer on or from the request on",
    "reset": "a connection is reset in the middle of an answer",
    "truncated": "an answer ends in its middle",
    "garbled": "bytes of an answer are others",
    "endless": "an answer is followed by bytes without an end",
    "slow": "an answer comes byte by byte",
    "too_many": "each request gets a 429 from something in between",
    "error": "each request gets a 500 from something in between",
}

_RESET = struct.pack("ii", 1, 0)
_REFUSALS = {"too_many": b"429 Too Many Requests", "error": b"500 Internal Server Error"}


class Relay:
    """Passes bytes on to a port of this machine.

    Attributes:
        way: one of the `WAYS`, for the connections that are open and those that come; None: as they are.
        after: bytes of an answer that still pass, in the ways that happen in its middle. A black hole after none
            swallows requests too.
        struck: by way, how many connections it happened to.
    """

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port = port
        self._rng = rng
        self.way: str | None = None
        self.after = 0
        self.struck: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._spoiled: set[asyncio.StreamWriter] = set()

    def break_(self, way: str, after: int = 0) -> None:
        self.way, self.after = way, after

    def heal(self) -> None:
        """From now on all goes through. A connection that bytes of were lost is closed: nothing sane comes of it."""
        self.way = None
        _abort(self._spoiled)

    def drop(self) -> None:
        """Close all that is open."""
        _abort(self._writers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Listen on a free port, which it yields."""
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            self.way = None
            self.drop()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.way == "refused":
            self.struck["refused"] += 1
            writer.close()
            return
        ends = {writer}
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            back, upstream = await asyncio.open_connection("127.0.0.1", self._port)
            ends.add(upstream)
            self._writers.add(upstream)
            directions = (self._requests(reader, upstream, writer), self._answers(back, writer, ends))
            tasks = {asyncio.create_task(direction) for direction in directions}
            self._tasks |= tasks
            await asyncio.wait(tasks)
            self._tasks -= tasks
        _abort(ends)
        self._writers -= ends
        self._spoiled -= ends

    async def _requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, agent: asyncio.StreamWriter
    ) -> None:
        lost = False  # once bytes are lost, none may follow them
        with contextlib.suppress(OSError):
            while data := await reader.read(16384):
                if self.way in _REFUSALS and not lost:
                    self.struck[self.way] += 1
                    head = b"HTTP/1.1 %b\r\nretry-after: 0\r\n" % _REFUSALS[self.way]
                    agent.write(head + b"content-length: 0\r\nconnection: close\r\n\r\n")
                    agent.close()
                    break
                if lost or (self.way == "black_hole" and not self.after):
                    self.struck["black_hole"] += not lost
                    self._spoiled |= {upstream, agent}
                    lost = True
                    continue
                upstream.write(data)
                await upstream.drain()
        upstream.close()

    async def _answers(
        self, reader: asyncio.StreamReader, agent: asyncio.StreamWriter, ends: set[asyncio.StreamWriter]
    ) -> None:
        passed, spoiled = 0, None  # once it happened to a connection, it stays so until that is closed
        with contextlib.suppress(OSError):
            while data := await reader.read(16384):
                if spoiled is None:
                    way = self.way
                    if way in (None, "refused", *_REFUSALS) or passed + len(data) <= self.after:
                        passed = 0 if way is None else passed + len(data)
                        agent.write(data)
                        await agent.drain()
                        continue
                    keep = max(0, self.after - passed)
                    agent.write(data[:keep])
                    await agent.drain()
                    self.struck[way] += 1
                    self._spoiled |= ends
                    spoiled, data = way, data[keep:]
                if not await self._spoil(spoiled, data, agent):
                    break
        agent.close()

    async def _spoil(self, way: str, data: bytes, agent: asyncio.StreamWriter) -> bool:
        """Do it to the rest of an answer; returns whether the connection goes on."""
        if way == "reset":
            agent.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            agent.transport.abort()
            return False
        if way == "garbled":
            agent.write(bytes(byte ^ self._rng.choice((0, 0, 0x15, 0x80)) for byte in data))
        elif way == "slow":
            for byte in data:
                agent.write(bytes([byte]))
                await agent.drain()
                await asyncio.sleep(0.005)
        elif way == "endless":
            agent.write(data)
            while True:
                agent.write(self._rng.randbytes(1024))
                await agent.drain()
                await asyncio.sleep(0.002)
        await agent.drain()
        return way != "truncated"


def _abort(writers: set[asyncio.StreamWriter]) -> None:
    for writer in list(writers):
        writer.transport.abort()
