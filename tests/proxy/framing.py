"""What the conformance tests share: one answer at a time from a connection that stays open, and one request through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from wire import LIMIT, Answer, Peer, Request, answer, ask, dial, sidecar, upstream


def get(path: bytes = b"/v1/models", *fields: bytes) -> bytes:
    """A GET on a connection that stays open."""
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"host: sidecar", *fields, b"", b""])


def kept_post(body: bytes, *fields: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    """A POST on a connection that stays open."""
    lines = [b"POST " + path + b" HTTP/1.1", b"host: sidecar", *fields, b"content-length: %d" % len(body), b"", b""]
    return b"\r\n".join(lines) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def next_answer(client: Peer, *, bodiless: bool = False) -> Answer:
    """Read one answer by its framing and no byte more; `bodiless` where the request was a HEAD."""
    async with asyncio.timeout(LIMIT):
        received = Answer(await client.reader.readuntil(b"\r\n\r\n"), b"")
        if bodiless or received.status < 200 or received.status in (204, 304):
            pass
        elif received.values(b"transfer-encoding"):
            size = -1
            while size:
                line = await client.reader.readuntil(b"\r\n")
                size = int(line, 16)
                received.rest += line + await client.reader.readexactly(size + 2)
        elif length := received.values(b"content-length"):
            received.rest = await client.reader.readexactly(int(length[0]))
        else:
            received.rest = await client.reader.read()
    return received


async def through(request: bytes, *response: bytes) -> tuple[Request, Answer]:
    """Send one request, which must ask for `connection: close`, to an upstream that answers with these pieces."""
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        for piece in response:
            await peer.send(piece)

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, request)
    return seen[0], received


async def echo(peer: Peer) -> None:
    """Answer each request with its body."""
    while True:
        await peer.send(answer((await peer.request()).body))


async def reaching_production(*pieces: bytes) -> tuple[bytes, Sequence[Request], int]:
    """Send pieces to the proxy, each once the one before it had time to be read.

    Returns what came back until the end of the connection, the requests that reached production whole, and the
    connections that were opened to it.
    """
    whole: list[Request] = []

    async def script(peer: Peer) -> None:
        while True:
            whole.append(await peer.request())
            await peer.send(answer(b"production"))

    async with upstream(script) as up, sidecar(up.port) as side:
        received = b""
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            for piece in pieces:
                client.writer.write(piece)
                await asyncio.sleep(0.02)  # so that the proxy reads it by itself
            with contextlib.suppress(ConnectionResetError):
                while data := await client.reader.read(65536):
                    received += data
        return received, whole, up.connections
