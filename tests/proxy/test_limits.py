"""What is at each limit on agents: an answer that says so, a count, and nothing left open."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from framing import chunk, echo, get, kept_post, next_answer
from network import full_listener
from wire import LIMIT, Answer, Peer, Sidecar, answer, ask, dial, post, sidecar, until, upstream

from slipstream.proxy.limits import AgentLimits
from slipstream.settings.sidecar import Limits

CHUNKED = b"POST /v1/files HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n"
STATUS = b"GET /status HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"


def refused(side: Sidecar, limit: str) -> float:
    return side.metric("refused_total", limit=limit)


def told(received: Answer, status: int, code: str, key: str) -> None:
    error = received.json()["error"]
    assert (received.status, error["code"]) == (status, code)
    assert key in error["message"]


# Connections


async def test_connection_beyond_the_limit_is_told_so_and_operators_still_get_in() -> None:
    async with upstream(echo) as up, sidecar(up.port, limits={"connections": 2}) as side:
        async with dial(side.port) as first, dial(side.port) as second:
            for client in (first, second):
                await client.send(b"POST /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: 9\r\n\r\n")
            await side.metric_reaches(2, "in_flight")
            received = await ask(side.port, kept_post(b"{}"))
            told(received, 503, "too_many_connections", "limits.connections")
            assert (received.values(b"retry-after"), received.values(b"connection")) == ([b"1"], [b"close"])
            assert (await ask(side.port, STATUS)).body == b"control /status"
            assert refused(side, "connections") == 2
            assert up.connections <= 2
        await side.metric_reaches(0, "connections")
        assert (await ask(side.port, post(b"again"))).body == b"again"


async def test_far_too_many_connections_are_closed_at_once() -> None:
    async with (
        upstream(echo) as up,
        sidecar(up.port, limits={"connections": 1}) as side,
        contextlib.AsyncExitStack() as held,
        asyncio.timeout(LIMIT),
    ):
        for _ in range(5):  # one, and four that may be told that there are too many
            client = await held.enter_async_context(dial(side.port))
            await client.send(b"POST /v1/x HTTP/1.1\r\nhost: s\r\nx-half: ")
        await side.metric_reaches(5, "connections")
        beyond = await held.enter_async_context(dial(side.port))
        with contextlib.suppress(ConnectionError):
            assert await beyond.reader.read() == b""
        assert side.metric("connections") == 5


async def test_idle_connections_make_room_the_idlest_first() -> None:
    async with upstream(echo) as up, sidecar(up.port, limits={"connections": 2}) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as idlest, dial(side.port) as other:
            for client in (idlest, other, other):
                await client.send(kept_post(b"{}"))
                await next_answer(client)
                await asyncio.sleep(0.002)  # uvloop's clock counts whole milliseconds
            async with dial(side.port) as new:
                await new.send(kept_post(b"new"))
                assert (await next_answer(new)).body == b"new"
                assert await idlest.reader.read() == b""
                await other.send(kept_post(b"still"))
                assert (await next_answer(other)).body == b"still"
        assert refused(side, "connections") == 0


# Exchanges under way


async def test_stream_beyond_the_limit_gets_a_503_and_other_routes_do_not() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if request.body == b"held":
                await go_on.wait()
            await peer.send(answer(request.body))

    async with upstream(script) as up, sidecar(up.port, limits={"streams": 1}) as side:
        async with dial(side.port) as held, dial(side.port) as client:
            await held.send(kept_post(b"held"))
            await side.metric_reaches(1, "in_flight")
            await client.send(kept_post(b"{}"))
            received = await next_answer(client)
            told(received, 503, "too_many_streams", "limits.streams")
            assert received.values(b"retry-after") == [b"1"]
            assert (await ask(side.port, STATUS)).body == b"control /status"
            health = await ask(side.port, b"GET /healthz HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n")
            assert health.status == 200
            go_on.set()
            assert (await next_answer(held)).body == b"held"
            await client.send(kept_post(b"again"))  # the refused one's connection is whole
            assert (await next_answer(client)).body == b"again"
        assert refused(side, "streams") == 1
        assert side.metric("requests_total", status="5xx") == 1


# Bodies


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "announced"])
async def test_body_beyond_the_limit_reaches_nobody(whole: bool) -> None:
    async with upstream(echo) as up, sidecar(up.port, limits={"request_body": 1000}) as side:
        body = b"x" * 1001
        async with dial(side.port) as client:
            await client.send(post(body)[: None if whole else -1001])
            told(await next_answer(client), 413, "too_large", "limits.request_body")
        assert up.connections == 0
        assert (await ask(side.port, post(body[:1000]))).body == body[:1000]
        assert refused(side, "request_body") == 1


@pytest.mark.parametrize("kept", [False, True], ids=["new", "kept"])
async def test_chunked_body_that_grows_beyond_the_limit_is_cut(kept: bool) -> None:
    ended = asyncio.Queue[bytes]()

    async def script(peer: Peer) -> None:
        while True:
            if (await peer.head()).values(b"transfer-encoding"):
                with contextlib.suppress(ConnectionError):
                    ended.put_nowait(await peer.reader.read())
                return
            await peer.send(answer(b""))

    async with upstream(script) as up, sidecar(up.port, limits={"request_body": "100KiB"}) as side:
        if kept:
            await ask(side.port, get(b"/v1/warm", b"connection: close"))
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            await client.send(CHUNKED + chunk(b"x" * 1000))
            await until(lambda: up.connections == 1)
            with contextlib.suppress(ConnectionError):
                for _ in range(200):
                    await client.send(chunk(b"x" * 1000))
            received = await next_answer(client)
            told(received, 413, "too_large", "limits.request_body")
            assert received.values(b"connection") == [b"close"]
            arrived = await ended.get()
        assert 1000 <= len(arrived) < 110_000
        assert not arrived.endswith(b"0\r\n\r\n")
        await side.metric_reaches(0, "in_flight")


async def test_body_of_other_routes_has_a_limit_of_its_own() -> None:
    limits = {"control_body": 100, "request_body": 1000}
    async with sidecar(9, limits=limits) as side:
        told(await ask(side.port, post(b"x" * 101, path=b"/marks")), 413, "too_large", "limits.control_body")
        assert (await ask(side.port, post(b"x" * 100, path=b"/marks"))).body == b"control /marks"
        assert refused(side, "control_body") == 1


ZEROS = b"0" * 5000
"""More digits than Python makes a number of; the parser takes them all."""


async def test_a_length_with_thousands_of_zeros_is_the_number_behind_them() -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(answer(await peer.reader.readexactly(2)))

    async with upstream(script) as up, sidecar(up.port, limits={"request_body": 9, "control_body": 9}) as side:
        head = b"%b HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: " + ZEROS + b"%d\r\n\r\n"
        for line, limit in ((b"POST /v1/x", "limits.request_body"), (b"GET /readyz", "limits.control_body")):
            told(await ask(side.port, head % (line, 10)), 413, "too_large", limit)
        async with dial(side.port) as client:
            await client.send(head % (b"POST /v1/x", 2))
            await side.metric_reaches(1, "in_flight")
            await client.send(b"ok")
            assert (await next_answer(client)).body == b"ok"
        await side.metric_reaches(0, "in_flight")


async def test_a_request_that_fails_before_it_is_under_way_leaves_the_count_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("slipstream.proxy.forward.admit", lambda *_: 1 / 0)
    async with sidecar(9) as side:
        assert (await ask(side.port, post(b"{}"))).rest == b""
        await side.metric_reaches(0, "connections")
        assert side.metric("in_flight") == 0
    assert "ZeroDivisionError" in caplog.text


# Heads


@pytest.mark.parametrize("step", [None, 5_000], ids=["at-once", "in-pieces"])
async def test_more_header_fields_than_the_limit_are_a_431(step: int | None) -> None:
    whole = get(b"/v1/x", *(b"x-%d: 1" % number for number in range(100_000)))
    async with upstream(echo) as up, sidecar(up.port, limits={"header_bytes": "8MiB"}) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            with contextlib.suppress(ConnectionError):
                for at in range(0, len(whole), step or len(whole)):
                    await client.send(whole[at : at + (step or len(whole))])
            told(await next_answer(client), 431, "too_many_headers", "limits.headers")
        assert up.connections == 0
        assert refused(side, "headers") == 1


@pytest.mark.parametrize("size", [9_000, 300_000])
async def test_head_longer_than_the_limit_is_a_431(size: int) -> None:
    async with upstream(echo) as up, sidecar(up.port, limits={"header_bytes": "8KiB"}) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            await client.send(get(b"/v1/x", b"x-long: " + b"y" * size))
            told(await next_answer(client), 431, "head_too_large", "limits.header_bytes")
        assert up.connections == 0
        assert refused(side, "header_bytes") == 1
        assert (await ask(side.port, post(b"b" * size))).body == b"b" * size  # a body is no head


# Time


async def test_head_that_trickles_in_is_a_408() -> None:
    async with upstream(echo) as up, sidecar(up.port, limits={"header_timeout": "200ms"}) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nx-slow: ")
            received = await next_answer(client)
            told(received, 408, "too_slow", "limits.header_timeout")
            assert await client.reader.read() == b""
        assert (up.connections, refused(side, "header_timeout")) == (0, 1)


@pytest.mark.parametrize("length", [b"content-length: 100000", b"transfer-encoding: chunked"], ids=["length", "chunks"])
async def test_body_that_trickles_in_is_a_408_and_productions_connection_is_closed(length: bytes) -> None:
    left = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.gone()
        left.set()

    async with upstream(script) as up, sidecar(up.port, limits={"body_timeout": "200ms"}) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            await client.send(b"POST /v1/files HTTP/1.1\r\nhost: s\r\n" + length + b"\r\n\r\n")
            reading = asyncio.create_task(next_answer(client))
            with contextlib.suppress(ConnectionError):
                while not reading.done():
                    await client.send(b"1\r\nx\r\n" if b"chunked" in length else b"x")
                    await asyncio.wait([reading], timeout=0.02)
            told(await reading, 408, "too_slow", "limits.body_timeout")
            await left.wait()
        assert refused(side, "body_timeout") == 1
        await side.metric_reaches(0, "in_flight")


@pytest.mark.slow
async def test_long_upload_passes_as_long_as_it_goes_on() -> None:
    """It takes twice the limit."""
    async with upstream(echo) as up, sidecar(up.port, limits={"body_timeout": "3s"}) as side:
        async with asyncio.timeout(3 * LIMIT), dial(side.port) as client:
            body = b"x" * 400_000
            await client.send(b"POST /v1/files HTTP/1.1\r\nhost: s\r\ncontent-length: 400000\r\n\r\n")
            for at in range(0, len(body), 20_000):
                await client.send(body[at : at + 20_000])
                await asyncio.sleep(0.3)
            assert (await next_answer(client)).body == body
        assert refused(side, "body_timeout") == 0


@pytest.mark.slow
async def test_upload_is_not_to_blame_for_a_production_that_does_not_take_it() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        peer.writer.transport.pause_reading()
        await go_on.wait()
        peer.writer.transport.resume_reading()
        await peer.reader.readexactly(2**24)
        await peer.send(answer(b"all of it"))

    async with (
        upstream(script) as up,
        sidecar(up.port, limits={"body_timeout": "1s"}) as side,
        asyncio.timeout(3 * LIMIT),
        dial(side.port) as client,
    ):
        client.writer.write(b"POST /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: %d\r\n\r\n" % 2**24 + b"x" * 2**24)
        await asyncio.sleep(2)  # longer than the limit
        go_on.set()
        assert (await next_answer(client)).body == b"all of it"


@pytest.mark.slow
async def test_upload_is_not_to_blame_for_a_production_that_cannot_be_reached() -> None:
    """Nothing is read from the agent while there is nobody to send it to."""
    with full_listener() as (_, port):
        async with sidecar(port, limits={"body_timeout": "100ms"}, connect_timeout="500ms") as side:
            received = await ask(side.port, b"POST /v1/x HTTP/1.1\r\nhost: s\r\ncontent-length: 9\r\n\r\nx")
            assert (received.status, received.json()["error"]["code"]) == (504, "connect_timeout")
            assert refused(side, "body_timeout") == 0


@pytest.mark.parametrize("endless", [True, False], ids=["endless", "ended"])
async def test_agent_that_does_not_read_is_cut(endless: bool) -> None:
    """Whether production has said all that it had to say or not: nothing stays open, here or there."""
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        try:
            await peer.request()
            length = 2**40 if endless else 2**25
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length)
            for _ in range(length // 2**16):
                await peer.send(b"x" * 2**16)
            await peer.gone()
        finally:
            closed.set()

    async with (
        upstream(script) as up,
        sidecar(up.port, limits={"answer_timeout": "300ms"}) as side,
        asyncio.timeout(LIMIT),
        dial(side.port) as client,
    ):
        client.writer.transport.pause_reading()
        await client.send(kept_post(b"{}"))
        await side.metric_reaches(1, "refused_total", limit="answer_timeout")
        await closed.wait()
        await side.metric_reaches(0, "connections")
        await side.metric_reaches(0, "in_flight")


@pytest.mark.slow
async def test_agent_that_reads_slowly_gets_all_of_it() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"x" * 2**23))

    async with upstream(script) as up, sidecar(up.port, limits={"answer_timeout": "1s"}) as side:
        async with asyncio.timeout(3 * LIMIT), dial(side.port) as client:
            client.reader._limit = 65536  # so that what it does not read waits at the sidecar
            await client.send(post(b"{}"))
            received = 0
            while data := await client.reader.read(2**19):
                received += len(data)
                await asyncio.sleep(0.05)
        assert received > 2**23
        assert refused(side, "answer_timeout") == 0


async def test_last_bytes_of_an_answer_that_nobody_reads_hold_no_connection_open() -> None:
    """Less than what makes the sidecar stop reading production's answer is left, and the connection is to close."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"x" * 2**23))

    async with (
        upstream(script) as up,
        sidecar(up.port, limits={"answer_timeout": "300ms"}) as side,
        asyncio.timeout(LIMIT),
        dial(side.port) as client,
    ):
        client.writer.transport.pause_reading()
        await client.send(post(b"{}"))
        await side.metric_reaches(1, "connections")
        await side.metric_reaches(0, "connections")


async def test_idle_connection_is_closed_after_keep_alive() -> None:
    async with (
        upstream(echo) as up,
        sidecar(up.port, limits={"keep_alive": "1s"}) as side,
        asyncio.timeout(LIMIT),
        dial(side.port) as client,
        dial(side.port) as silent,
    ):
        await client.send(kept_post(b"{}"))
        await next_answer(client)
        assert await client.reader.read() == b""
        assert await silent.reader.read() == b""


@pytest.mark.parametrize("workers", [1, 3])
def test_worker_takes_its_share(workers: int) -> None:
    share = AgentLimits.share(Limits(connections=10, streams=7, request_body=100), workers=workers)
    assert (share.connections, share.streams) == {1: (10, 7), 3: (4, 3)}[workers]
    assert share.request_body.most == 100
