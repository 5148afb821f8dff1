"""Explorers that are no use: nobody there, one that never answers, one that answers rubbish."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

RUBBISH = (
    b"\x16\x03\x01 this is not HTTP\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>",
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n[]",
    b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n{"choices": 7}',
    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\nnope",
    b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
)

WAYS = ("down", "hung", "rubbish")


@asynccontextmanager
async def broken_explorer(way: str) -> AsyncIterator[str]:
    """An Explorer that is broken in one of the `WAYS`; yields its base URL."""
    answers = itertools.cycle(RUBBISH)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read(1)
        if way == "rubbish":
            writer.write(next(answers))
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    if way == "down":
        server.close()
        await server.wait_closed()
    try:
        yield url
    finally:
        server.close()
        for writer in writers:
            writer.close()
