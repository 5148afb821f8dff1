"""Asking the Explorer: whole answers and pieces, and no connection left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from peer import Peer, Script
from serving import until

from slipstream.explorer.http import ExplorerHttp
from slipstream.http.errors import UpstreamError

MB = 1024 * 1024
CHAT = (b"POST", b"/v1/chat/completions", [(b"content-length", b"2")], b"{}")


class Explorer:
    """A server by script; `open` connections are those that neither end has closed."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.url = ""
        self.open = 0
        self.opened = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.open += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._script(Peer(reader, writer))
        finally:
            self.open -= 1
            writer.close()


@contextlib.asynccontextmanager
async def explorer(script: Script, *, timeout: float = 10.0) -> AsyncIterator[tuple[Explorer, ExplorerHttp]]:
    serving = Explorer(script)
    server = await asyncio.start_server(serving.handle, "127.0.0.1", 0)
    serving.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/policy/"
    client = ExplorerHttp(serving.url, connect_timeout=2, timeout=timeout)
    try:
        yield serving, client
    finally:
        client.close()
        before = serving.opened
        _, last = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        last.close()
        await until(lambda: serving.opened > before)  # so it has accepted those that were before
        await until(lambda: not serving.open, what="no connection is left")
        server.close()


async def ask(client: ExplorerHttp, pieces: list[bytes] | None = None) -> bytes:
    """An answer's whole body, piece by piece."""
    response = await client.send(*CHAT)
    pieces = [] if pieces is None else pieces
    try:
        while not response.at_end:
            pieces.append(await response.read())
    finally:
        response.close()
    return b"".join(pieces)


async def test_requests_share_a_connection_and_header_names_come_in_lower_case() -> None:
    heads = []

    async def script(peer: Peer) -> None:
        while True:
            heads.append((await peer.request()).head)
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-TYPE: a/B\r\nContent-Length: 3\r\n\r\nyes")

    async with explorer(script) as (serving, client):
        response = await client.send(*CHAT)
        assert (response.status, response.headers) == (200, [(b"content-type", b"a/B"), (b"content-length", b"3")])
        assert (await response.read(), response.at_end) == (b"yes", True)
        response.close()
        assert await ask(client) == b"yes"
        assert serving.opened == 1
        host = serving.url.removeprefix("http://").partition("/")[0].encode()
        line = b"POST /policy/v1/chat/completions HTTP/1.1\r\n"
        assert heads == [line + b"host: " + host + b"\r\ncontent-length: 2\r\n\r\n"] * 2


async def test_pieces_come_as_they_arrive() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await go_on.wait()
        await peer.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.gone()

    async with explorer(script) as (_, client):
        response = await client.send(*CHAT)
        assert await response.read() == b"one"
        assert not response.at_end
        go_on.set()
        rest = b""
        while not response.at_end:
            rest += await response.read()
        assert rest == b"two"
        response.close()


async def test_an_explorer_that_is_faster_than_its_reader_is_held_back() -> None:
    total, sent = 64 * MB, 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            await peer.send(b"x" * MB)
            sent += MB
        await peer.gone()

    async with explorer(script) as (_, client):
        response = await client.send(*CHAT)
        seen = -1
        while seen != sent:  # until it is stuck
            seen = sent
            await asyncio.sleep(0.1)
        assert sent < 16 * MB, "what the kernel's buffers hold"
        received = 0
        while not response.at_end:
            received += len(await response.read())
        assert received == total
        response.close()


async def test_a_stuck_reader_leaves_no_connection_when_it_gives_up() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (64 * MB))
        while True:
            await peer.send(b"x" * MB)

    async with explorer(script) as (serving, client):
        response = await client.send(*CHAT)
        await asyncio.sleep(0.2)
        response.close()
        await until(lambda: not serving.open)


@pytest.mark.parametrize("rounds", range(12))
async def test_a_caller_that_goes_at_any_moment_leaves_no_connection(rounds: int) -> None:
    """Cancelled after so many rounds of the event loop: while connecting, before the head, in mid-answer."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none")
        await peer.gone()

    async with explorer(script) as (_, client):
        asking = asyncio.create_task(ask(client))
        for _ in range(rounds):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none", "closed"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n", "closed"),
        (b"SSH-2.0-OpenSSH\r\n", "protocol"),
    ],
)
async def test_an_answer_that_is_cut_is_an_error_behind_what_came_of_it(answer: bytes, cause: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)

    async with explorer(script) as (_, client):
        pieces: list[bytes] = []
        with pytest.raises(UpstreamError) as failed:
            await ask(client, pieces)
        assert failed.value.cause == cause
        assert b"".join(pieces) == (b"one" if b"one" in answer else b"")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("answer", "cause"),
    [(b"", "first_byte_timeout"), (b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\none", "idle_timeout")],
)
async def test_an_explorer_that_hangs_is_given_up(answer: bytes, cause: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer)
        await peer.gone()

    async with explorer(script, timeout=2) as (serving, client):
        with pytest.raises(UpstreamError) as failed:
            await ask(client)
        assert failed.value.cause == cause
        await until(lambda: not serving.open)


async def test_an_answer_before_the_whole_request_is_the_answer() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno")
        await peer.gone()

    async with explorer(script) as (_, client):
        body = b"x" * (32 * MB)
        response = await client.send(b"POST", b"/v1/x", [(b"content-length", b"%d" % len(body))], body)
        assert (response.status, await response.read(), response.at_end) == (413, b"no", True)
        response.close()
