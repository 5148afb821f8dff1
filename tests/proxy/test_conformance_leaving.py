"""Whenever the agent leaves, the connection to production is closed, nothing is left, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest
from framing import chunk, echo, get, kept_post, next_answer
from network import full_listener, http_proxy
from wire import LIMIT, Peer, Sidecar, answer, ask, dial, post, sidecar, until, upstream

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n"

leave = pytest.mark.parametrize("how", ["close", "reset"])


class Watch:
    """Where an exchange has come to, and whether production saw its connection end."""

    def __init__(self) -> None:
        self.there = asyncio.Event()
        self.left = asyncio.Event()

    async def wait_until_left(self, peer: Peer) -> None:
        self.there.set()
        await peer.gone()
        self.left.set()


@contextlib.asynccontextmanager
async def leaving(side: Sidecar, how: str) -> AsyncIterator[Peer]:
    """An agent that leaves at the end of the block, by a close or a reset."""
    async with dial(side.port) as client:
        yield client
        if how == "reset":
            client.reset()


async def all_is_quiet(side: Sidecar, *, gone: int = 1) -> None:
    await side.metric_reaches(gone, "caller_gone_total")
    await side.metric_reaches(0, "in_flight")


@leave
async def test_while_connecting(how: str) -> None:
    with full_listener() as (_, port):
        async with sidecar(port, connect_timeout="60s") as side:
            async with leaving(side, how) as client:
                await client.send(kept_post(b"{}"))
                await side.metric_reaches(1, "in_flight")
            await all_is_quiet(side)
            exchange = await side.tap.next()
            assert (exchange.complete, exchange.error, exchange.status) == (False, "caller_gone", None)


@leave
async def test_while_tls_shakes_hands(how: str) -> None:
    watch = Watch()
    async with upstream(watch.wait_until_left) as up, sidecar(up.port, scheme="https") as side:
        async with leaving(side, how) as client:
            await client.send(kept_post(b"{}"))
            await asyncio.wait_for(watch.there.wait(), LIMIT)
        await asyncio.wait_for(watch.left.wait(), LIMIT)
        await all_is_quiet(side)


@leave
async def test_while_connect_waits_at_the_proxy(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_proxy(says=()) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="https://production.example/v1") as side:
            async with leaving(side, how) as client:
                await client.send(kept_post(b"{}"))
                await until(lambda: bool(proxy.heads))
                assert proxy.gone == 0
            await until(lambda: proxy.gone == 1)
            await all_is_quiet(side)


@leave
async def test_while_tls_shakes_hands_in_the_tunnel(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    async with upstream(watch.wait_until_left) as up, http_proxy(up.port) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="https://production.example/v1") as side:
            async with leaving(side, how) as client:
                await client.send(kept_post(b"{}"))
                await asyncio.wait_for(watch.there.wait(), LIMIT)
            await asyncio.wait_for(watch.left.wait(), LIMIT)
            await all_is_quiet(side)


@leave
@pytest.mark.parametrize(
    ("framing", "part"),
    [(b"content-length: 1000", b"part"), (b"transfer-encoding: chunked", chunk(b"part"))],
    ids=["length", "chunked"],
)
async def test_while_the_request_goes_up(framing: bytes, part: bytes, how: str) -> None:
    watch = Watch()
    whole = False

    async def script(peer: Peer) -> None:
        nonlocal whole
        await peer.head()
        await peer.reader.readuntil(b"part")
        watch.there.set()
        with contextlib.suppress(ConnectionError):
            whole = (await peer.reader.read()).endswith(b"0\r\n\r\n")
        watch.left.set()

    async with upstream(script) as up, sidecar(up.port) as side:
        async with leaving(side, how) as client:
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\n" + framing + b"\r\n\r\n" + part)
            await asyncio.wait_for(watch.there.wait(), LIMIT)
        await asyncio.wait_for(watch.left.wait(), LIMIT)
        await all_is_quiet(side)
        assert not whole


@leave
async def test_while_production_does_not_take_the_request(how: str) -> None:
    """Reading from the agent has stopped then, so that its leaving shows at the latest when production's limit ends."""

    async def script(peer: Peer) -> None:
        peer.writer.transport.pause_reading()
        await left.wait()
        peer.writer.transport.resume_reading()
        await peer.gone()
        closed.set()

    left, closed = asyncio.Event(), asyncio.Event()
    async with upstream(script) as up, sidecar(up.port, idle_timeout="500ms") as side:
        async with leaving(side, how) as client:
            client.writer.write(b"POST /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: 100000000\r\n\r\n" + b"x" * 2**24)
            await until(lambda: up.connections == 1)
            client.writer.transport.abort()
        await side.metric_reaches(0, "in_flight")
        left.set()
        await asyncio.wait_for(closed.wait(), LIMIT)


@leave
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\nx-half: "])
async def test_while_the_head_is_awaited(before: bytes, how: str) -> None:
    watch = Watch()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(before)
        await watch.wait_until_left(peer)

    async with upstream(script) as up, sidecar(up.port) as side:
        async with leaving(side, how) as client:
            await client.send(kept_post(b"{}"))
            await asyncio.wait_for(watch.there.wait(), LIMIT)
        await asyncio.wait_for(watch.left.wait(), LIMIT)
        await all_is_quiet(side)
        exchange = await side.tap.next()
        assert (exchange.complete, exchange.error, exchange.status) == (False, "caller_gone", None)


@leave
@pytest.mark.parametrize(
    "head", [CHUNKED + b"64\r\n", LENGTH, b"HTTP/1.1 200 OK\r\n\r\n"], ids=["chunked", "length", "close"]
)
async def test_in_mid_body(head: bytes, how: str) -> None:
    watch = Watch()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + b"partial")
        await watch.wait_until_left(peer)

    async with upstream(script) as up, sidecar(up.port) as side:
        async with leaving(side, how) as client:
            await client.send(kept_post(b"{}"))
            await client.reader.readuntil(b"partial")
        await asyncio.wait_for(watch.left.wait(), LIMIT)
        await all_is_quiet(side)
        exchange = await side.tap.next()
        assert (exchange.complete, exchange.error, exchange.response_body) == (False, "caller_gone", b"partial")


@leave
async def test_while_it_holds_a_long_answer_back(how: str) -> None:
    closed = asyncio.Event()
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(LENGTH)
        try:
            while True:
                await peer.send(b"x" * 65536)
                sent += 65536
        finally:
            closed.set()

    async with upstream(script) as up, sidecar(up.port) as side:
        async with leaving(side, how) as client:
            client.reader._limit = 65536  # so that the client, too, holds back
            await client.send(kept_post(b"{}"))
            await client.reader.readuntil(b"\r\n\r\n")
            stalled_at = -1
            while stalled_at != sent:
                stalled_at = sent
                await asyncio.sleep(0.2)
            client.writer.transport.abort()
        await asyncio.wait_for(closed.wait(), LIMIT)
        await all_is_quiet(side)


@leave
@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
async def test_with_a_pipelined_request_waiting(kept: bool, how: str) -> None:
    watch = Watch()
    reached: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            reached.append((await peer.request()).line)
            if reached[-1] == b"GET /v1/first HTTP/1.1":
                await watch.wait_until_left(peer)
                break
            await peer.send(answer(b"warm"))

    async with upstream(script) as up, sidecar(up.port) as side:
        if kept:
            await ask(side.port, post(b"{}", path=b"/v1/warm"))
        async with leaving(side, how) as client:
            await client.send(get(b"/v1/first") + get(b"/v1/second") + get(b"/v1/third"))
            await asyncio.wait_for(watch.there.wait(), LIMIT)
        await asyncio.wait_for(watch.left.wait(), LIMIT)
        await all_is_quiet(side)
        assert reached[kept:] == [b"GET /v1/first HTTP/1.1"]


@leave
async def test_between_two_requests(how: str) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        for number in range(5):
            async with leaving(side, how) as client:
                await client.send(kept_post(b"%d" % number))
                assert (await next_answer(client)).body == b"%d" % number
        assert up.connections == 1, "production's connection was whole, and could be kept"
        assert side.metric("caller_gone_total") == 0


@leave
@pytest.mark.parametrize("sent", [b"", b"POST /v1/x HT", b"POST /v1/x HTTP/1.1\r\nhost: s\r\n"])
async def test_before_its_request_is_there(sent: bytes, how: str) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        async with leaving(side, how) as client:
            await client.send(sent)
        assert (await ask(side.port, post(b"next"))).body == b"next"
        assert up.connections == 1
        await side.metric_reaches(0, "in_flight")


@leave
async def test_while_control_answers(how: str) -> None:
    """What is not production's is forwarded too, and its end noticed."""
    async with sidecar(9) as side:
        async with leaving(side, how) as client:
            await client.send(get(b"/status") + get(b"/tasks"))
        request = b"GET /tasks HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"
        assert (await ask(side.port, request)).body == b"control /tasks"


async def test_of_many_at_any_moment_leaves_nothing_behind() -> None:
    order = random.Random(7)
    open_here = 0

    async def script(peer: Peer) -> None:
        nonlocal open_here
        open_here += 1
        try:
            while True:
                request = await peer.request()
                await asyncio.sleep(order.random() / 50)
                if len(request.body) % 2:
                    await peer.send(CHUNKED)
                    for _ in range(5):
                        await peer.send(chunk(b"x" * order.choice([1, 1000, 100_000])))
                        await asyncio.sleep(order.random() / 200)
                    await peer.send(b"0\r\n\r\n")
                else:
                    await peer.send(answer(request.body))
        finally:
            open_here -= 1

    async def agent(side: Sidecar) -> None:
        for _ in range(10):
            async with leaving(side, order.choice(["close", "reset"])) as client:
                with contextlib.suppress(ConnectionError):
                    request = kept_post(b"y" * order.randrange(5000))
                    await client.send(request[: order.choice([50, len(request), len(request)])])
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(client.reader.read(order.choice([1, 2**20])), order.random() / 25)

    async with upstream(script) as up, sidecar(up.port) as side:
        await asyncio.gather(*(agent(side) for _ in range(30)))
        await side.metric_reaches(0, "in_flight")
        await until(lambda: open_here == side.kept_connections)
        for number in range(20):
            body = b"z" * (2 * number)
            assert (await ask(side.port, post(body))).body == body
