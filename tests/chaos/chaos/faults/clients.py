"""Clients that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from chaos.faults.fault import fault

if TYPE_CHECKING:
    from chaos.world import World


@fault("slow_loris", "fifty clients that send a request byte by byte and never end it")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n%bcontent-length: 100000\r\n\r\n" % _key(world)
    head += b"{" * 1000
    ports = [int(url.rpartition(":")[2]) for url in world.urls]

    async def dawdle() -> None:
        writer = None
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", rng.choice(ports))
            world.struck["slow_loris"] += 1
            begun = rng.randrange(len(head) - 200)
            writer.write(head[:begun])
            for byte in head[begun:]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.1)
        if writer is not None:
            writer.close()

    clients = [asyncio.create_task(dawdle()) for _ in range(50)]
    yield
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)


@fault("clients_gone", "clients that reset their connections amid a stream")
async def _(world: World, rng: random.Random) -> AsyncIterator[None]:
    ports = [int(url.rpartition(":")[2]) for url in world.urls]

    async def leave(number: int) -> None:
        body = b'{"stream": true, "messages": [{"role": "user", "content": "gone %d"}]}' % number
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        head += b"x-pace: 20x0.2\r\ncontent-type: application/json\r\n"
        writer = None
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", rng.choice(ports))
            writer.write(head + _key(world) + b"content-length: %d\r\n\r\n%b" % (len(body), body))
            async with asyncio.timeout(2):
                await reader.readuntil(b"\r\n\r\n")
                await reader.read(1)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            world.struck["clients_gone"] += 1
        if writer is not None:
            writer.transport.abort()

    clients = [asyncio.create_task(leave(number)) for number in range(10)]
    yield
    for client in clients:
        client.cancel()
    await asyncio.wait(clients)


def _key(world: World) -> bytes:
    """The line of a head that has the sidecars' key."""
    return "".join(f"{name}: {value}\r\n" for name, value in world.headers.items()).encode()
