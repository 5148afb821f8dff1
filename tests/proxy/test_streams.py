"""Streams arrive as production sends them, and a broken one never looks whole."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from wire import LIMIT, ListTap, Peer, answer, ask, dial, post, sidecar, until, upstream

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

SSE = (
    b": a comment\n\n"
    b'data: {"delta":"\xe2\x82\xac"}\n\n'
    b"event: x\r\ndata: crlf\r\n\r\n"
    b"data: cr only\r\r"
    b"id:7\nretry: 10\n:\n\n"
    b"data: [DONE]\n\n"
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def response_of(*parts: bytes, then: str = "close") -> object:
    async def script(peer: Peer) -> None:
        await peer.request()
        for part in parts:
            await peer.send(part)
        if then == "reset":
            peer.reset()

    async with upstream(script) as up, sidecar(up.port) as side:
        return await ask(side.port, post(b'{"stream":true}'))


async def test_sse_bytes_one_by_one() -> None:
    response = await response_of(CHUNKED, *[chunk(SSE[i : i + 1]) for i in range(len(SSE))], b"0\r\n\r\n")
    assert response.body == SSE


async def test_chunk_framing_split_anywhere() -> None:
    raw = CHUNKED + b"5;ext=1\r\nhello\r\n" + chunk(SSE) + b"0\r\n\r\n"
    response = await response_of(*[raw[i : i + 3] for i in range(0, len(raw), 3)])
    assert response.body == b"hello" + SSE


async def test_each_byte_arrives_before_the_next_is_sent() -> None:
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        for byte in "€uro".encode():
            await peer.send(chunk(bytes([byte])))
            async with asyncio.timeout(LIMIT):
                await received.wait()  # were anything held back until more comes, this would time out
            received.clear()
        await peer.send(b"0\r\n\r\n")

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(post(b"{}"))
        await client.reader.readuntil(b"\r\n\r\n")
        body = b""
        while size := int(await client.reader.readuntil(b"\r\n"), 16):
            body += await client.reader.readexactly(size)
            await client.reader.readexactly(2)
            received.set()
    assert body == "€uro".encode()


async def test_head_arrives_before_the_first_byte_of_the_body() -> None:
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        async with asyncio.timeout(LIMIT):
            await seen.wait()
        await peer.send(b"0\r\n\r\n")

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(post(b"{}"))
        assert b"200 OK" in await client.reader.readuntil(b"\r\n\r\n")
        seen.set()
        assert await client.reader.read() == b"0\r\n\r\n"


async def test_response_that_ends_with_the_connection() -> None:
    response = await response_of(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", SSE)
    assert response.body == SSE


@pytest.mark.parametrize("then", ["close", "reset"])
@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", CHUNKED],
    ids=["content-length", "chunked"],
)
async def test_upstream_that_dies_in_mid_answer(head: bytes, then: str) -> None:
    tap = ListTap()
    first = asyncio.Event()
    die = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + (chunk(b"partial") if head is CHUNKED else b"partial"))
        first.set()
        await die.wait()
        if then == "reset":
            peer.reset()

    async with upstream(script) as up, sidecar(up.port, tap=tap) as side:
        asking = asyncio.create_task(ask(side.port, post(b"{}")))
        await first.wait()
        die.set()
        response = await asking
        exchange = await tap.next()
        assert side.metric("upstream_errors_total", cause="closed") == 1
    assert response.status == 200
    with pytest.raises(EOFError):
        _ = response.body
    assert b"partial".startswith(response.received)
    assert (exchange.complete, exchange.error) == (False, "closed")


async def test_what_came_with_the_end_of_a_dying_upstream_is_forwarded() -> None:
    response = await response_of(CHUNKED + chunk(b"one") + chunk(b"two") + b"5\r\nth")
    assert response.received == b"onetwoth"
    with pytest.raises(EOFError):
        _ = response.body


async def test_reset_of_a_response_that_ends_with_the_connection_is_no_end() -> None:
    sent = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\npartial")
        await sent.wait()
        peer.reset()

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(post(b"{}"))
        await client.reader.readuntil(b"partial\r\n")
        sent.set()
        assert await client.reader.read() == b""


async def test_upstream_that_goes_idle_in_mid_answer() -> None:
    tap = ListTap()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"partial"))
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port, tap=tap, idle_timeout="100ms") as side:
        response = await ask(side.port, post(b"{}"))
        assert (await tap.next()).error == "idle_timeout"
    assert (response.status, response.received) == (200, b"partial")
    with pytest.raises(EOFError):
        _ = response.body


async def test_caller_that_leaves_before_the_first_byte() -> None:
    tap, asked, left = ListTap(), asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        left.set()

    async with upstream(script) as up, sidecar(up.port, tap=tap) as side:
        async with dial(side.port) as client:
            await client.send(post(b"{}"))
            await asked.wait()
        async with asyncio.timeout(LIMIT):
            await left.wait()
        exchange = await tap.next()
        await side.metric_reaches(1, "caller_gone_total")
        await side.metric_reaches(0, "in_flight")
    assert (exchange.complete, exchange.error, exchange.status) == (False, "caller_gone", None)


async def test_caller_that_leaves_in_mid_stream() -> None:
    tap, left = ListTap(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"partial"))
        await peer.gone()
        left.set()

    async with upstream(script) as up, sidecar(up.port, tap=tap) as side:
        async with dial(side.port) as client:
            await client.send(post(b"{}"))
            await client.reader.readuntil(b"partial")
        async with asyncio.timeout(LIMIT):
            await left.wait()
        exchange = await tap.next()
    assert (exchange.complete, exchange.error, exchange.response_body) == (False, "caller_gone", b"partial")


async def test_caller_that_leaves_while_it_sends() -> None:
    tap, begun, left = ListTap(), asyncio.Event(), asyncio.Event()
    got = b""

    async def script(peer: Peer) -> None:
        nonlocal got
        await peer.head()
        got = await peer.reader.readexactly(4)
        begun.set()
        with contextlib.suppress(ConnectionError):
            got += await peer.reader.read()
        left.set()

    async with upstream(script) as up, sidecar(up.port, tap=tap) as side:
        async with dial(side.port) as client:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n"
            await client.send(head + b"1\r\na\r\n")
            await begun.wait()
        async with asyncio.timeout(LIMIT):
            await left.wait()
        exchange = await tap.next()
    assert b"0\r\n" not in got, "half a request must not look whole"
    assert (exchange.error, exchange.request_body) == ("caller_gone", None)


@pytest.mark.slow
async def test_slow_caller_holds_production_back_and_is_not_production_being_idle() -> None:
    size = 32 * 1024**2
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent < size:
            await peer.send(b"x" * 65536)
            sent += 65536

    async with upstream(script) as up, sidecar(up.port, idle_timeout="1s") as side, dial(side.port) as client:
        client.reader._limit = 65536  # so that the client, too, holds back
        await client.send(post(b"{}"))
        await client.reader.readuntil(b"\r\n\r\n")
        stalled_at = -1
        while stalled_at != sent:
            stalled_at = sent
            await asyncio.sleep(1.5)  # longer than idle_timeout, which must not strike
        assert sent < size, "the whole answer was taken in for a caller who reads nothing"
        received = 0
        async with asyncio.timeout(LIMIT):
            while data := await client.reader.read(2**20):
                received += len(data)
    assert received == size


async def test_early_answer_to_a_request_that_is_still_being_sent() -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(answer(b"too large", b"connection: close", status=b"413 Payload Too Large"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(b"POST /v1/files HTTP/1.1\r\nhost: s\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
        head = await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), LIMIT)
        assert head.startswith(b"HTTP/1.1 413 ")
        assert await client.reader.readexactly(9) == b"too large"


async def test_answer_that_waits_for_the_rest_of_the_request_is_not_idle() -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(CHUNKED)
        await peer.send(chunk(await peer.reader.readexactly(8)) + b"0\r\n\r\n")

    async with upstream(script) as up, sidecar(up.port, idle_timeout="600ms") as side, dial(side.port) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: 8\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(0.1)  # together longer than idle_timeout
            await client.send(b"x")
        assert (await client.reader.read()).endswith(b"xxxxxxxx\r\n0\r\n\r\n")


async def test_upstream_that_does_not_take_the_request() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.transport.pause_reading()
        await asyncio.sleep(LIMIT)

    async with upstream(script) as up, sidecar(up.port, idle_timeout="200ms") as side, dial(side.port) as client:
        client.writer.write(b"POST /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: 33554432\r\n\r\n" + b"x" * 2**25)
        async with asyncio.timeout(LIMIT):
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 504 ")
            assert b"idle_timeout" in await client.reader.readuntil(b"}}")


@pytest.mark.slow
async def test_slow_caller_has_the_time_it_wants_to_send() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(answer((await peer.request()).body))

    async with (
        upstream(script) as up,
        sidecar(up.port, idle_timeout="1s", first_byte_timeout="1s") as side,
        dial(side.port) as client,
    ):
        await client.send(b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: 2\r\n\r\na")
        await until(lambda: side.metric("in_flight") == 1)
        await asyncio.sleep(1.5)  # longer than both
        await client.send(b"b")
        assert (await client.reader.read()).endswith(b"\r\n\r\nab")
