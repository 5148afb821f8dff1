"""Connections to production are kept and used again, and a closed one never costs an answer twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from wire import LIMIT, Peer, answer, ask, post, sidecar, until, upstream

from slipstream.http import pool as pool_module
from slipstream.http.connection import Connection

GET = b"GET /v1/models HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"


async def echo(peer: Peer) -> None:
    while True:
        request = await peer.request()
        await peer.send(answer(request.body))


async def test_one_connection_serves_requests_in_sequence() -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        for number in range(20):
            assert (await ask(side.port, post(b"%d" % number))).body == b"%d" % number
        assert up.connections == 1
        assert side.metric("connect_seconds_count") == 1


async def test_concurrent_requests_get_connections_of_their_own() -> None:
    both = asyncio.Barrier(2)

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await both.wait()
            await peer.send(answer(request.body))

    async with upstream(script) as up, sidecar(up.port) as side:
        for _ in range(3):
            await asyncio.gather(ask(side.port, post(b"a")), ask(side.port, post(b"b")))
        assert up.connections == 2


@pytest.mark.parametrize(
    "response",
    [
        answer(b"x", b"connection: close"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx",
        answer(b"x") + b"surplus",
        answer(b"x") + answer(b"y"),
        b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 1\r\n\r\nx",
    ],
    ids=["close", "http-1.0", "surplus", "two-answers", "500"],
)
async def test_connection_that_cannot_be_trusted_is_not_used_again(response: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response)
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port) as side:
        for _ in range(3):
            assert (await ask(side.port, post(b"{}"))).body == b"x"
        assert up.connections == 3


async def test_answer_to_nothing_closes_the_idle_connection() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(answer(request.body))
        await answered.wait()
        await peer.send(answer(b"poison"))
        await peer.gone()
        closed.set()

    answered, closed = asyncio.Event(), asyncio.Event()
    async with upstream(script) as up, sidecar(up.port) as side, asyncio.timeout(LIMIT):
        assert (await ask(side.port, post(b"1"))).body == b"1"
        answered.set()
        await closed.wait()
        assert (await ask(side.port, post(b"2"))).body == b"2"
        assert up.connections == 2


async def closing_at_second_request(peer: Peer) -> None:
    """An upstream whose idle limit strikes while the next request is on its way."""
    request = await peer.request()
    await peer.send(answer(b"first " + request.body))
    await peer.head()


async def test_post_on_a_connection_that_closes_is_reported_not_repeated() -> None:
    async with upstream(closing_at_second_request) as up, sidecar(up.port) as side:
        assert (await ask(side.port, post(b"1"))).body == b"first 1"
        response = await ask(side.port, post(b"2"))
        assert (response.status, response.json()["error"]["code"]) == (502, "closed")
        assert up.connections == 1
        assert (await ask(side.port, post(b"3"))).body == b"first 3"


async def test_get_on_a_connection_that_closes_is_sent_again() -> None:
    async with upstream(closing_at_second_request) as up, sidecar(up.port) as side:
        for _ in range(2):
            assert (await ask(side.port, GET)).body == b"first "
        assert up.connections == 2


async def test_a_request_that_is_sent_again_has_a_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the closing connection did not take it at once, as one whose buffers are full."""
    sent = 0
    send = Connection.send

    def stuck_at_second_request(connection: Connection, head: bytes, pieces: Sequence[bytes]) -> None:
        nonlocal sent
        sent += 1
        send(connection, head, pieces)
        if sent == 2:
            connection.pause_writing()

    async def script(peer: Peer) -> None:
        if up.connections == 1:
            await closing_at_second_request(peer)
        else:
            await peer.gone()

    monkeypatch.setattr(Connection, "send", stuck_at_second_request)
    async with upstream(script) as up, sidecar(up.port, first_byte_timeout="200ms") as side:
        assert (await ask(side.port, GET)).body == b"first "
        response = await ask(side.port, GET)
        assert (response.status, response.json()["error"]["code"]) == (504, "first_byte_timeout")
        assert up.connections == 2


async def test_get_is_not_sent_a_third_time() -> None:
    async def script(peer: Peer) -> None:
        nonlocal served
        await peer.head()
        if not served:
            served = True
            await peer.send(answer())
            await peer.head()

    served = False
    async with upstream(script) as up, sidecar(up.port) as side:
        assert (await ask(side.port, GET)).status == 200
        assert (await ask(side.port, GET)).status == 502
        assert up.connections == 2


async def test_idle_connection_closed_by_production_is_noticed() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(answer((await peer.request()).body))

    async with upstream(script) as up, sidecar(up.port) as side:
        for number in range(3):
            assert (await ask(side.port, post(b"%d" % number))).body == b"%d" % number
            await until(lambda: side.kept_connections == 0)
        assert up.connections == 3


async def test_connection_is_not_kept_longer_than_upstreams_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_LIFE", 0.0)
    async with upstream(echo) as up, sidecar(up.port) as side:
        for number in range(3):
            assert (await ask(side.port, post(b"%d" % number))).body == b"%d" % number
        await until(lambda: up.connections == 3)


@pytest.mark.slow
async def test_connections_of_a_burst_do_not_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(peer: Peer) -> None:
        while True:
            if (await peer.request()).body == b"burst":
                await burst.wait()
            await peer.send(answer())

    monkeypatch.setattr(pool_module, "IDLE_LIFE", 3.0)
    burst = asyncio.Barrier(3)
    async with upstream(script) as up, sidecar(up.port) as side, asyncio.timeout(LIMIT):
        await asyncio.gather(*(ask(side.port, post(b"burst")) for _ in range(3)))
        assert up.connections == 3
        while side.kept_connections > 1:
            await ask(side.port, post(b"steady"))
        assert up.connections == 3


async def test_caller_that_left_does_not_poison_the_connection() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if request.body == b"leave":
                await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart")
                await peer.gone()
                return
            await peer.send(answer(request.body))

    async with upstream(script) as up, sidecar(up.port) as side:
        assert (await ask(side.port, post(b"1"))).body == b"1"
        reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
        writer.write(post(b"leave"))
        await reader.readuntil(b"part")
        writer.close()
        await writer.wait_closed()
        await side.metric_reaches(1, "caller_gone_total")
        assert (await ask(side.port, post(b"2"))).body == b"2"
        assert up.connections == 2
