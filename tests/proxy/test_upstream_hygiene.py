"""An upstream that is slow, silent or endless ends by a limit, takes a bounded memory, and keeps nothing open.

That an agent which leaves, at any point, closes the upstream's connection is in `test_conformance_leaving.py`.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from framing import chunk, kept_post, next_answer
from wire import LIMIT, Peer, answer, ask, dial, post, sidecar, until, upstream

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("part", [b"x", b"HTTP/1.1 103 Early Hints\r\n\r\n"], ids=["head", "interim"])
async def test_head_that_trickles_in_does_not_move_the_limit(part: bytes) -> None:
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        try:
            await peer.send(b"HTTP/1.1 200 OK\r\nx-slow: " if part == b"x" else b"")
            while True:
                await peer.send(part)
                await asyncio.sleep(0.02)
        finally:
            closed.set()

    async with upstream(script) as up, sidecar(up.port, first_byte_timeout="300ms") as side:
        received = await ask(side.port, post(b"{}"))
        assert (received.status, received.json()["error"]["code"]) == (504, "first_byte_timeout")
        await asyncio.wait_for(closed.wait(), LIMIT)


@pytest.mark.slow
async def test_answer_that_trickles_in_passes_however_long_it_takes() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        for _ in range(20):
            await peer.send(chunk(b"x"))
            await asyncio.sleep(0.3)
        await peer.send(b"0\r\n\r\n")

    async with upstream(script) as up, sidecar(up.port, first_byte_timeout="3s", idle_timeout="3s") as side:
        assert (await ask(side.port, post(b"{}"))).body == b"x" * 20


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("before", "status"),
    [
        (b"", 504),
        (CHUNKED, 200),
        (CHUNKED + chunk(b"some"), 200),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", 200),
    ],
    ids=["nothing", "head", "piece", "length"],
)
async def test_silence_at_any_point_ends_the_exchange_and_the_connection(before: bytes, status: int) -> None:
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(before)
        await peer.gone()
        closed.set()

    async with upstream(script) as up, sidecar(up.port, first_byte_timeout="1s", idle_timeout="1s") as side:
        received = await ask(side.port, post(b"{}"))
        assert received.status == status
        if status == 200:
            with pytest.raises(EOFError):
                _ = received.body  # cut, so that nobody takes it for the whole
        await asyncio.wait_for(closed.wait(), LIMIT)
        await side.metric_reaches(0, "in_flight")
        cause = "first_byte_timeout" if not before else "idle_timeout"
        assert side.metric("upstream_errors_total", cause=cause) == 1


@pytest.mark.parametrize(
    ("before", "endless", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-more: y\r\n" * 100, 502),
        (b"HTTP/1.1 200 ", b"O" * 1000, 502),
        (b"", b"HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n" * 100, 502),
        (CHUNKED + chunk(b"all") + b"0\r\n", b"x-more: y\r\n" * 100, 200),
        (CHUNKED + b"3;", b"x" * 1000, 200),
    ],
    ids=["fields", "reason", "interim", "trailers", "extension"],
)
async def test_endless_head_of_any_kind_is_cut(before: bytes, endless: bytes, status: int) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(before)
        while True:
            await peer.send(endless)
            sent += len(endless)
            await asyncio.sleep(0)

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, post(b"{}"))
        assert received.status == status
        if status == 200:
            with pytest.raises(EOFError):
                _ = received.body
        await side.metric_reaches(0, "in_flight")
        assert side.metric("upstream_errors_total", cause="protocol") == 1
    assert sent < 16 * 2**20  # a megabyte, and what sockets hold


async def test_endless_answer_waits_with_an_agent_that_does_not_read() -> None:
    """What was taken off production's hands is in sockets and one buffer; nothing grows."""
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(CHUNKED)
        while True:
            await peer.send(chunk(b"x" * 65536))
            sent += 65536

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        client.writer.transport.pause_reading()
        await client.send(kept_post(b"{}"))
        before = -1
        async with asyncio.timeout(LIMIT):
            while before != sent or not sent:
                before = sent
                await asyncio.sleep(0.2)
        assert sent < 32 * 2**20
        assert side.metric("in_flight") == 1


async def test_upstream_that_takes_no_request_ends_by_the_idle_limit() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.transport.pause_reading()
        await asyncio.sleep(LIMIT)

    async with upstream(script) as up, sidecar(up.port, idle_timeout="300ms") as side, dial(side.port) as client:
        body = b"x" * 2**25
        head = b"POST /v1/files HTTP/1.1\r\nhost: s\r\ncontent-length: %d\r\n\r\n" % len(body)
        client.writer.write(head + body)
        received = await next_answer(client)
        assert (received.status, received.json()["error"]["code"]) == (504, "idle_timeout")
        client.writer.transport.abort()


async def test_upstream_that_answers_what_was_not_asked_keeps_no_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"first"))
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.send(answer(b"nobody asked"))
                await asyncio.sleep(0)

    async with upstream(script) as up, sidecar(up.port) as side:
        for _ in range(3):
            assert (await ask(side.port, post(b"{}"))).body == b"first"
        await until(lambda: side.kept_connections == 0)
        assert up.connections == 3
