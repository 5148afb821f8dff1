"""Headers may be long, many and odd, on both sides; beyond a limit they are refused and cost no memory."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from framing import echo, get, next_answer, through
from wire import LIMIT, Peer, answer, ask, dial, post, sidecar, upstream

TCHAR = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
"""All bytes that a header's name may have (RFC 9110, section 5.6.2), in lower case."""

FIELD = bytes([9, *range(32, 127), *range(128, 256)])
"""All bytes that a header's value may have; blank ones at its ends are not part of it."""


@pytest.mark.parametrize("size", [8_000, 60_000])
async def test_long_values(size: int) -> None:
    value = b"v" * size
    request, received = await through(post(b"{}", b"x-long: " + value), answer(b"ok", b"x-long: " + value))
    assert request.values(b"x-long") == [value]
    assert received.values(b"x-long") == [value]
    assert received.body == b"ok"


async def test_many_headers() -> None:
    fields = [b"x-%d: %d" % (number % 50, number) for number in range(500)]
    request, received = await through(post(b"{}", *fields), answer(b"ok", *fields))
    assert [b"%b: %b" % field for field in request.fields[1:-1]] == fields
    assert [b"%b: %b" % field for field in received.fields[: len(fields)]] == fields
    assert received.body == b"ok"


async def test_long_target() -> None:
    target = b"/v1/models?" + b"q=%20&" * 5_000
    request, _ = await through(get(target, b"connection: close"), answer())
    assert request.line == b"GET " + target + b" HTTP/1.1"


async def test_all_legal_bytes_both_ways() -> None:
    field = b"X-" + TCHAR.upper() + b": " + FIELD.strip(b" \t")
    request, received = await through(post(b"{}", field), answer(b"ok", field))
    assert request.values(b"x-" + TCHAR) == [FIELD.strip(b" \t")]
    assert received.values(b"x-" + TCHAR) == [FIELD.strip(b" \t")]


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (b"x-a:1", b"1"),
        (b"x-a:   1", b"1"),
        (b"x-a:\t1", b"1"),
        (b"x-a: 1 2\t3", b"1 2\t3"),
        (b"x-a: a:b: c", b"a:b: c"),
        (b"x-a: \xff\xfe\x80", b"\xff\xfe\x80"),
        (b'x-a: "quoted, \\" list", (comment)', b'"quoted, \\" list", (comment)'),
        (b"x-a:", b""),
        (b"x-a:    ", b""),
    ],
)
async def test_value_arrives_without_the_blanks_before_it(sent: bytes, arrives: bytes) -> None:
    request, received = await through(post(b"{}", sent), answer(b"ok", sent))
    assert request.values(b"x-a") == [arrives]
    assert received.values(b"x-a") == [arrives]


async def test_blanks_behind_a_value_do_not_matter() -> None:
    request, received = await through(post(b"{}", b"x-a: 1 \t "), answer(b"ok", b"x-a: 1 \t "))
    assert request.values(b"x-a")[0].rstrip(b" \t") == b"1"
    assert received.values(b"x-a")[0].rstrip(b" \t") == b"1"


@pytest.mark.parametrize("name", [b"content-length", b"host", b"authorization"])
async def test_connection_cannot_name_away_what_counts(name: bytes) -> None:
    request, received = await through(
        post(b"body", b"authorization: Bearer x", b"connection: " + name), answer(b"answer", b"connection: " + name)
    )
    assert (request.body, received.body) == (b"body", b"answer")
    assert len(request.values(b"host")) == 1


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v1/" + b"x" * 4_000_000 + b" HTTP/1.1\r\nhost: s\r\n",
        b"GET /v1/x HTTP/1.1\r\nhost: s\r\nx-long: " + b"v" * 4_000_000 + b"\r\n",
        b"GET /v1/x HTTP/1.1\r\nhost: s\r\n" + b"x-many: 1\r\n" * 400_000,
    ],
    ids=["target", "value", "many"],
)
async def test_head_without_end_is_refused_and_reaches_nobody(start: bytes) -> None:
    async with upstream(echo) as up, sidecar(up.port) as side:
        async with asyncio.timeout(LIMIT), dial(side.port) as client:
            with contextlib.suppress(ConnectionError):
                await client.send(start)
            received = b""
            with contextlib.suppress(ConnectionError):
                received = await client.reader.read(1000)
            # the refusal itself may be lost behind a reset, as the rest of the head is still on its way
            assert received == b"" or received.split(b" ")[1] in (b"400", b"414", b"431")
        assert up.connections == 0
        assert (await ask(side.port, post(b"next"))).body == b"next"


async def test_trailers_without_end_are_refused() -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.gone()

    head = b"POST /v1/x HTTP/1.1\r\nhost: s\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    async with upstream(script) as up, sidecar(up.port) as side, asyncio.timeout(LIMIT), dial(side.port) as client:
        with contextlib.suppress(ConnectionError):
            await client.send(head)
            await client.send(b"x-many: 1\r\n" * 400_000)
        received = b""
        with contextlib.suppress(ConnectionError):
            received = await client.reader.read(1000)
        assert received == b"" or received.split(b" ")[1] in (b"400", b"431")


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nx-long: " + b"v" * 4_000_000,
        b"HTTP/1.1 200 OK\r\n" + b"x-many: 1\r\n" * 400_000,
        b"HTTP/1.1 200 " + b"OK" * 2_000_000,
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 100_000,
    ],
    ids=["value", "many", "reason", "interim"],
)
async def test_answers_head_without_end_is_a_502(start: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        with contextlib.suppress(ConnectionError):
            await peer.send(start)
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, post(b"{}"))
        assert (received.status, received.json()["error"]["code"]) == (502, "protocol")


async def test_answers_trailers_without_end_break_it_off() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.send(b"x-many: 1\r\n" * 10_000)

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(post(b"{}"))
        async with asyncio.timeout(LIMIT):
            with contextlib.suppress(ConnectionError):
                received = await client.reader.read()
        assert b"\r\n0\r\n" not in received


async def test_head_that_is_split_anywhere_means_the_same() -> None:
    head = [b"GET /v1/x HTTP/1.1\r", b"\nhost: s\r\nx-a", b": 1\r\nx-b:", b" 2\r\n", b"x-c: 3", b"\r\n\r\n"]
    seen: list[tuple[bytes, bytes]] = []

    async def script(peer: Peer) -> None:
        seen.extend((await peer.request()).fields[1:])
        await peer.send(answer(b"ok"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        for piece in head:
            await client.send(piece)
            await asyncio.sleep(0.01)
        assert (await next_answer(client)).body == b"ok"
    assert seen == [(b"x-a", b"1"), (b"x-b", b"2"), (b"x-c", b"3")]
