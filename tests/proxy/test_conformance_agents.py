"""What agents' HTTP clients do: pipelining, Expect, HTTP/1.0, absolute targets, closing, and taking their time."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest
from framing import chunk, echo, get, kept_post, next_answer
from wire import LIMIT, Peer, Request, answer, ask, dial, post, sidecar, until, upstream

from slipstream.proxy.request import Request as ReadRequest

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


# Pipelining


@pytest.mark.parametrize(
    "requests",
    [
        [get(b"/v1/0"), get(b"/v1/1")],
        [get(b"/v1/0"), get(b"/v1/1"), get(b"/v1/2")],
        [kept_post(b"a", path=b"/v1/0"), kept_post(b"bb" * 5000, path=b"/v1/1"), get(b"/v1/2")],
        [get(b"/v1/%d" % number) for number in range(100)],
    ],
    ids=["two", "three", "bodies", "hundred"],
)
@pytest.mark.parametrize("step", [None, 7], ids=["one-segment", "split"])
async def test_pipelined_requests_are_answered_one_after_the_other(requests: list[bytes], step: int | None) -> None:
    under_way = 0

    async def script(peer: Peer) -> None:
        nonlocal under_way
        while True:
            request = await peer.request()
            under_way += 1
            assert under_way == 1, "the next one was sent to production before this one was answered"
            for _ in range(3):
                await asyncio.sleep(0)
            under_way -= 1
            await peer.send(answer(request.line + b" " + request.body))

    whole = b"".join(requests)
    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        step = step if step and len(whole) < 1000 else len(whole)
        for at in range(0, len(whole), step):
            await client.send(whole[at : at + step])
        for number, request in enumerate(requests):
            line, body = request.split(b"\r\n", 1)[0], request.partition(b"\r\n\r\n")[2]
            assert b"/v1/%d " % number in line
            assert (await next_answer(client)).body == line + b" " + body


async def test_pipelined_second_waits_for_the_end_of_the_first_answer() -> None:
    second = asyncio.Event()
    first_ends = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if b"/v1/first" in request.line:
                await peer.send(CHUNKED + chunk(b"begun"))
                await first_ends.wait()
                await peer.send(b"0\r\n\r\n")
            else:
                second.set()
                await peer.send(answer(b"second"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(get(b"/v1/first") + kept_post(b"{}"))
        await client.reader.readuntil(b"begun\r\n")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(second.wait(), 0.1)
        assert not second.is_set()
        first_ends.set()
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"
        assert (await next_answer(client)).body == b"second"


async def test_pipelined_requests_of_production_and_control_keep_their_order() -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(kept_post(b"one") + get(b"/tasks") + kept_post(b"two") + get(b"/status") + kept_post(b"3"))
        bodies = [(await next_answer(client)).body for _ in range(5)]
        assert bodies == [b"one", b"control /tasks", b"two", b"control /status", b"3"]


async def test_pipelined_requests_behind_a_broken_answer_are_not_sent() -> None:
    reached: list[bytes] = []

    async def script(peer: Peer) -> None:
        reached.append((await peer.request()).line)
        await peer.send(CHUNKED + chunk(b"partial"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(get(b"/v1/first") + get(b"/v1/second"))
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionResetError):
                received = await client.reader.read()
        assert b"\r\n0\r\n" not in received
        assert reached == [b"GET /v1/first HTTP/1.1"]


async def test_pipelined_requests_behind_a_bad_one_are_not_sent() -> None:
    reached: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            reached.append(request.line)
            await peer.send(answer(b"first"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(get(b"/v1/first") + b"GET /v1/bad HTTP/1.1\r\nhost : s\r\n\r\n" + get(b"/v1/third"))
        async with asyncio.timeout(LIMIT):
            received = await client.reader.read()
        assert b"HTTP/1.1 400 " in received
        assert reached in ([], [b"GET /v1/first HTTP/1.1"])


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_pipelined_request_whose_body_is_still_coming(framing: str) -> None:
    """Its first half comes with the request before it, its second half when that one is answered."""
    head = b"POST /v1/second HTTP/1.1\r\nhost: s\r\n"
    first, rest = {
        "length": (head + b"content-length: 8\r\n\r\nhalf", b"rest"),
        "chunked": (head + b"transfer-encoding: chunked\r\n\r\n" + chunk(b"half"), chunk(b"rest") + b"0\r\n\r\n"),
    }[framing]
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        for _ in range(2):  # once on a new connection to production, once on a kept one
            await client.send(kept_post(b"first") + first)
            assert (await next_answer(client)).body == b"first"
            await client.send(rest)
            assert (await next_answer(client)).body == b"halfrest"


async def test_long_body_of_a_request_that_waits_is_not_taken_in() -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await go_on.wait()
            await peer.send(answer(b"%d" % len(request.body)))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        client.writer.write(kept_post(b"{}") + kept_post(b"x" * 2**25))
        stalled_at = -1
        while stalled_at != (left := client.writer.transport.get_write_buffer_size()):
            stalled_at = left
            await asyncio.sleep(0.2)
        assert left > 2**24, "the body was taken in before its turn"
        go_on.set()
        assert (await next_answer(client)).body == b"2"
        assert (await next_answer(client)).body == b"%d" % 2**25


async def test_pipelining_agent_that_reads_nothing_holds_its_own_requests_back() -> None:
    served = 0
    body = b"x" * 2**20

    async def script(peer: Peer) -> None:
        nonlocal served
        while True:
            await peer.request()
            served += 1
            await peer.send(answer(body))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        client.reader._limit = 65536  # so that the client, too, holds back
        await client.send(get() * 60)
        stalled_at = -1
        while stalled_at != served:
            stalled_at = served
            await asyncio.sleep(0.2)
        assert served < 60, "sixty answers were taken in for an agent that reads none"
        for _ in range(60):
            assert (await next_answer(client)).body == body


async def test_pipelined_row_of_short_requests_is_not_parsed_whole() -> None:
    """Each connection's turn would be that much longer, for all others: of 256 KB these are nine thousand."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await go_on.wait()

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        client.writer.write(b"GET /v1 HTTP/1.1\r\nHost:\r\n\r\n" * 9000)
        await asyncio.wait_for(arrived.wait(), LIMIT)
        ahead = sum(type(each) is ReadRequest for each in gc.get_objects())
        go_on.set()
    assert 32 < ahead < 2000


# The connection's life


@pytest.mark.parametrize("fields", [[], [b"connection: keep-alive"], [b"Connection: Keep-Alive, x-foo"]])
async def test_connection_stays_open_by_default(fields: list[bytes]) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        for number in range(5):
            await client.send(kept_post(b"%d" % number, *fields))
            received = await next_answer(client)
            assert received.body == b"%d" % number
            assert b"close" not in received.values(b"connection")


@pytest.mark.parametrize("value", [b"close", b"Close", b"CLOSE", b"x-foo, close", b"close,x-foo"])
async def test_connection_ends_where_the_agent_asks_for_it(value: bytes) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(kept_post(b"last", b"Connection: " + value))
        received = await next_answer(client)
        assert (received.body, received.values(b"connection")) == (b"last", [b"close"])
        assert await asyncio.wait_for(client.reader.read(), LIMIT) == b""


async def test_connection_that_production_closes_does_not_close_the_agents() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(answer(request.body, b"connection: close"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        for number in range(3):
            await client.send(kept_post(b"%d" % number))
            received = await next_answer(client)
            assert (received.body, received.values(b"connection")) == (b"%d" % number, [])
        assert up.connections == 3


async def test_errors_of_the_proxy_leave_the_agents_connection_open() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        if request.body != b"drop":
            await peer.send(answer(request.body, b"connection: close"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        for body, status in [(b"a", 200), (b"drop", 502), (b"b", 200), (b"drop", 502), (b"c", 200)]:
            await client.send(kept_post(body))
            received = await next_answer(client)
            assert received.status == status
            assert status != 200 or received.body == body


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n"])
async def test_blank_lines_before_a_request_are_skipped(blank: bytes) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        for number in range(3):
            await client.send(blank + kept_post(b"%d" % number))
            assert (await next_answer(client)).body == b"%d" % number


# Expect


async def test_expectant_body_is_sent_after_the_100_and_comes_through() -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        for number in range(2):
            body = b"%d" % number * 100_000
            head = b"POST /v1/x HTTP/1.1\r\nhost: s\r\nExpect: 100-Continue\r\ncontent-length: %d\r\n\r\n" % len(body)
            await client.send(head)
            assert (await next_answer(client)).status == 100
            await client.send(body)
            received = await next_answer(client)
            assert (received.status, received.body) == (200, body)


async def test_expectant_chunked_body_comes_through() -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(
            b"POST /v1/x HTTP/1.1\r\nhost: s\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        assert (await next_answer(client)).status == 100
        await client.send(chunk(b"a") + chunk(b"b") + b"0\r\n\r\n")
        assert (await next_answer(client)).body == b"ab"


async def test_expectation_of_an_http_1_0_agent_is_ignored() -> None:
    request = b"POST /v1/x HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}"
    async with upstream(echo) as up, sidecar(up.port) as side:
        received = await ask(side.port, request)
    assert (received.status, received.body) == (200, b"{}")


async def test_productions_own_100_is_not_a_second_one() -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.reader.readexactly(2)
        await peer.send(answer(b"ok"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\nhost: s\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert (await next_answer(client)).status == 100
        await client.send(b"{}")
        assert (await next_answer(client)).status == 200


# HTTP/1.0


@pytest.mark.parametrize(
    "response",
    [
        (answer(b"hello"),),
        (CHUNKED, chunk(b"hel"), chunk(b"lo") + b"0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello",),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + answer(b"hello"),),
    ],
    ids=["length", "chunked", "close", "interim"],
)
async def test_http_1_0_agent_gets_no_chunks_and_the_end_of_the_connection(response: tuple[bytes, ...]) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        for piece in response:
            await peer.send(piece)

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, b"GET /v1/models HTTP/1.0\r\n\r\n")
    assert received.status == 200
    assert received.values(b"transfer-encoding") == []
    assert received.rest == b"hello"


async def test_http_1_0_request_reaches_production_as_http_1_1_with_a_host() -> None:
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        await peer.send(answer(b"ok"))

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, b"POST /v1/x HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        assert received.body == b"ok"
        assert (seen[0].line, seen[0].body) == (b"POST /v1/x HTTP/1.1", b"{}")
        assert seen[0].values(b"host") == [b"127.0.0.1:%d" % up.port]


async def test_http_1_0_agent_that_asks_for_it_keeps_its_connection_or_sees_it_closed() -> None:
    request = b"POST /v1/x HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}"
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(request)
        received = await next_answer(client)
        assert received.body == b"{}"
        if [value.lower() for value in received.values(b"connection")] == [b"keep-alive"]:
            await client.send(request)
            assert (await next_answer(client)).body == b"{}"
        else:
            assert await asyncio.wait_for(client.reader.read(), LIMIT) == b""


async def test_http_1_0_agent_does_not_take_a_cut_answer_for_the_whole() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npartial")

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, b"GET /v1/models HTTP/1.0\r\n\r\n")
        with pytest.raises(EOFError):
            _ = received.body


# Targets


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"http://sidecar/v1/models", b"/v1/models"),
        (b"http://sidecar:8000/v1/models?a=%20&b=/", b"/v1/models?a=%20&b=/"),
        (b"https://elsewhere.example/v1//x/../y", b"/v1//x/../y"),
        (b"HTTP://Sidecar/v1/%2Fx", b"/v1/%2Fx"),
        (b"http://[::1]:8000/v1/models", b"/v1/models"),
    ],
)
async def test_absolute_target_is_its_path_here(target: bytes, expected: bytes) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(answer(request.line + b" " + b",".join(request.values(b"host"))))

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, b"GET " + target + b" HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n")
        assert received.body == b"GET " + expected + b" HTTP/1.1 127.0.0.1:%d" % up.port


async def test_absolute_target_of_control_is_controls() -> None:
    async with sidecar(9) as side:
        request = b"GET http://sidecar/tasks HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"
        assert (await ask(side.port, request)).body == b"control /tasks"


@pytest.mark.parametrize("line", [b"CONNECT production:443 HTTP/1.1", b"OPTIONS * HTTP/1.1"])
async def test_targets_without_a_path_are_not_productions(line: bytes) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            await client.send(line + b"\r\nhost: s\r\nconnection: close\r\n\r\n")
            received = await client.reader.read()
        assert not (line.startswith(b"CONNECT") and received.startswith(b"HTTP/1.1 2"))
        assert up.connections == 0


# Time and pieces


async def test_request_byte_by_byte() -> None:
    request = post(b'{"a": 1}', b"x-a: b")
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        for at in range(len(request)):
            await client.send(request[at : at + 1])
            await asyncio.sleep(0)
        assert (await next_answer(client)).body == b'{"a": 1}'
        assert up.connections == 1


async def test_head_has_a_limit_that_more_bytes_of_it_do_not_move() -> None:
    limits = {"header_timeout": "1s"}
    async with upstream(echo) as up, sidecar(up.port, limits=limits) as side, dial(side.port) as client:
        await client.send(kept_post(b"quick"))
        assert (await next_answer(client)).body == b"quick"
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nx-slow: ")
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                while not client.reader.at_eof():
                    await client.send(b"x")
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(client.reader.read(1), 0.1)
        assert up.connections == 1


async def test_half_heads_reach_nobody_and_hinder_nobody() -> None:
    async with upstream(echo) as up, sidecar(up.port) as side, contextlib.AsyncExitStack() as slow:
        for _ in range(50):
            client = await slow.enter_async_context(dial(side.port))
            await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\nx-slow: ")
        assert (await ask(side.port, post(b"quick"))).body == b"quick"
        for client in [await slow.enter_async_context(dial(side.port)) for _ in range(3)]:
            await client.send(kept_post(b"kept"))
            assert (await next_answer(client)).body == b"kept"
            await client.send(b"POST /v1/")  # a half head on a connection that served one
        assert (await ask(side.port, post(b"quick"))).body == b"quick"
        assert side.metric("in_flight") == 0
        assert side.metric("requests_total", status="2xx") == 5


async def test_rest_of_a_body_that_was_answered_early_is_not_a_request() -> None:
    reached: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.head()
            reached.append(request.line)
            await peer.send(answer(b"too large", status=b"413 Payload Too Large"))
            await peer.gone()

    inner = b"GET /v1/smuggled HTTP/1.1\r\nhost: s\r\n\r\n"
    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(b"POST /v1/files HTTP/1.1\r\nhost: s\r\ncontent-length: 1000\r\n\r\n" + inner)
        assert (await next_answer(client)).status == 413
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await client.send(inner * 5)
            await client.send(inner.ljust(1000 - 6 * len(inner)))
            await client.send(get(b"/v1/next"))
            await next_answer(client)
        assert reached in ([b"POST /v1/files HTTP/1.1"], [b"POST /v1/files HTTP/1.1", b"GET /v1/next HTTP/1.1"])


async def test_request_body_arrives_as_it_is_sent() -> None:
    arrived = asyncio.Queue[bytes]()

    async def script(peer: Peer) -> None:
        await peer.head()
        for _ in range(3):
            arrived.put_nowait(await peer.reader.readexactly(4))
        await peer.send(answer(b"ok"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(b"POST /v1/files HTTP/1.1\r\nhost: s\r\ncontent-length: 12\r\n\r\n")
        for piece in (b"aaaa", b"bbbb", b"cccc"):
            await client.send(piece)
            assert await asyncio.wait_for(arrived.get(), LIMIT) == piece  # before the next one is sent
        assert (await next_answer(client)).body == b"ok"


@pytest.mark.parametrize("sizes", [[1] * 500, [1, 70_000, 3], [200_000, 1]], ids=["tiny", "mixed", "large"])
async def test_chunked_request_of_any_sizes(sizes: list[int]) -> None:
    pieces = [bytes([65 + at % 26]) * size for at, size in enumerate(sizes)]
    head = b"POST /v1/x HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n"
    async with upstream(echo) as up, sidecar(up.port) as side, dial(side.port) as client:
        for framed in (
            b"".join(chunk(piece) for piece in pieces),
            b"".join(b"%04X;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces),
        ):
            await client.send(head + framed + b"0\r\n\r\n")
            assert (await next_answer(client)).body == b"".join(pieces)
        await until(lambda: side.metric("in_flight") == 0)
