"""Names, addresses and proxies that a test makes up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop
from wire import Peer, Request, upstream

Address = tuple[str, int]


@contextlib.contextmanager
def full_listener() -> Iterator[Address]:
    """The address of a listener whose queue is full: a further attempt gets no answer."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()


def resolve(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[Address]]) -> None:
    """Let these names have these addresses; the port of an address replaces the asked one."""

    def names_first(resolver: Any) -> Any:
        async def getaddrinfo(loop: Any, host: str, port: int, **hints: Any) -> Any:
            if host not in names:
                return await resolver(loop, host, port, **hints)
            return [
                (socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM, 6, "", address)
                for address in names[host]
            ]

        return getaddrinfo

    for loop in (uvloop.Loop, asyncio.BaseEventLoop):
        monkeypatch.setattr(loop, "getaddrinfo", names_first(loop.getaddrinfo))


@dataclass
class HttpProxy:
    """An HTTP proxy that a test runs; `heads` are the CONNECTs that it got, `gone` counts the agents that left it."""

    port: int = 0
    heads: list[Request] = field(default_factory=list)
    gone: int = 0


@contextlib.asynccontextmanager
async def http_proxy(
    target: int = 0, *, says: tuple[bytes, ...] = (b"HTTP/1.1 200 Connection established\r\n\r\n",)
) -> AsyncIterator[HttpProxy]:
    """A proxy that answers CONNECT with `says`, and passes bytes on to the port `target` of 127.0.0.1, if given one.

    Nothing to say means that it stays silent.
    """
    proxy = HttpProxy()

    async def script(peer: Peer) -> None:
        proxy.heads.append(await peer.head())
        for piece in says:
            await peer.send(piece)
        try:
            if target:
                await _relay(peer, target)
            elif not says:
                await peer.gone()
        finally:
            proxy.gone += 1

    async with upstream(script) as up:
        proxy.port = up.port
        yield proxy


async def _relay(peer: Peer, target: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", target)

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    try:
        await asyncio.gather(pump(peer.reader, writer), pump(reader, peer.writer))
    finally:
        writer.close()
