"""A server's end of one connection, by hand: what arrives on it and what is sent, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass
class Request:
    """A request as its bytes arrived."""

    head: bytes
    body: bytes
    """Without chunk framing."""

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.rstrip(b"\r\n").split(b"\r\n")[1:]
        return [(name, value.removeprefix(b" ")) for name, _, value in (line.partition(b":") for line in lines)]

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key.lower() == name]


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> Request:
        """The next request's head, its body unread."""
        return Request(await self.reader.readuntil(b"\r\n\r\n"), b"")

    async def request(self) -> Request:
        request = await self.head()
        if request.values(b"transfer-encoding"):
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                request.body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\r\n")
        elif length := request.values(b"content-length"):
            request.body = await self.reader.readexactly(int(length[0]))
        return request

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Wait until the other side has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        """Break the connection off with a TCP reset."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.writer.transport.abort()


Script = Callable[[Peer], Awaitable[None]]
