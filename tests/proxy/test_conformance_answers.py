"""However HTTP/1.1 frames an answer, it comes through, and its connection is fit for the next one or closed."""

from __future__ import annotations

import pytest
from framing import chunk, get, kept_post, next_answer, through
from wire import Peer, answer, ask, dial, post, sidecar, upstream

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"
HEAD = b"HEAD /v1/models HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PROCESSING = b"HTTP/1.1 102 Processing\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </x>; rel=preload\r\ncontent-type: text/plain\r\n\r\n"


@pytest.mark.parametrize(
    "interim",
    [CONTINUE, PROCESSING, HINTS, CONTINUE + PROCESSING + HINTS, HINTS * 50, b"HTTP/1.1 199 Odd\r\n\r\n"],
    ids=["100", "102", "103", "three", "fifty", "199"],
)
@pytest.mark.parametrize("split", ["apart", "together", "bytes"])
async def test_interim_answers_are_not_the_answer(interim: bytes, split: str) -> None:
    final = answer(b"final", b"x-final: 1", status=b"201 Created")
    pieces = {
        "apart": [interim, final],
        "together": [interim + final],
        "bytes": [(interim + final)[at : at + 1] for at in range(len(interim + final))],
    }[split]
    if split == "bytes" and len(pieces) > 1000:
        pieces = [b"".join(pieces[at : at + 7]) for at in range(0, len(pieces), 7)]
    _, received = await through(post(b"{}"), *pieces)
    assert (received.status, received.body) == (201, b"final")
    assert [name for name, _ in received.fields] == [b"x-final", b"content-length", b"connection"]


@pytest.mark.parametrize("framed", [b"content-length: 5\r\n\r\nhello", b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"])
async def test_interim_answer_with_a_body_is_none(framed: bytes) -> None:
    """Interim answers have no body: what follows its head is the answer, or none."""
    _, received = await through(post(b"{}"), b"HTTP/1.1 199 Wait\r\n" + framed + answer(b"behind it"))
    assert received.status == 502


async def test_interim_answer_of_the_next_exchange_is_not_the_last_ones_surplus() -> None:
    async def script(peer: Peer) -> None:
        for number in range(3):
            await peer.request()
            await peer.send(CONTINUE + answer(b"%d" % number))

    async with upstream(script) as up, sidecar(up.port) as side:
        for number in range(3):
            assert (await ask(side.port, post(b"{}"))).body == b"%d" % number
        assert up.connections == 1


@pytest.mark.parametrize(
    ("request_", "first"),
    [
        (get(), b"HTTP/1.1 204 No Content\r\n\r\n"),
        (get(), b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"),
        (get(), b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        (get(), b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5000\r\n\r\n"),
        (get(), b"HTTP/1.1 304 Not Modified\r\ntransfer-encoding: chunked\r\n\r\n"),
        (get(), answer(b"")),
        (get(), answer(b"length")),
        (get(), CHUNKED + b"0\r\n\r\n"),
        (get(), CHUNKED + chunk(b"chunked") + b"0\r\n\r\n"),
        (get(), CHUNKED + chunk(b"chunked") + b"0\r\nx-trailer: 1\r\nx-second: 2\r\n\r\n"),
        (get(), b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
        (get().replace(b"GET", b"HEAD"), b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"),
        (get().replace(b"GET", b"HEAD"), b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        (get().replace(b"GET", b"HEAD"), b"HTTP/1.1 404 Not Found\r\ncontent-length: 9\r\n\r\n"),
    ],
    ids=lambda value: value[:60].decode() if value.startswith(b"HTTP") else "",
)
async def test_next_answer_on_the_same_two_connections_is_the_next(request_: bytes, first: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(first)
        assert (await peer.request()).body == b"second"
        await peer.send(answer(b"second answer", b"x-second: 1"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(request_)
        received = await next_answer(client, bodiless=request_.startswith(b"HEAD"))
        assert received.status == int(first[9:12])
        await client.send(kept_post(b"second"))
        second = await next_answer(client)
        assert (second.status, second.body, second.values(b"x-second")) == (200, b"second answer", [b"1"])
        assert second.values(b"x-trailer") == []
        assert up.connections == 1


@pytest.mark.parametrize(
    ("first", "length"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n", [b"12345"]),
        (b"HTTP/1.1 200 OK\r\n\r\n", []),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", [b"0"]),
    ],
)
async def test_head_gets_the_headers_of_a_body_and_none(first: bytes, length: list[bytes]) -> None:
    _, received = await through(HEAD, first)
    assert received.rest == b""
    assert received.values(b"content-length") == length
    assert not (length and received.values(b"transfer-encoding"))


async def test_head_without_a_framing_ends_with_its_head() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            head = request.line.startswith(b"HEAD")
            await peer.send(b"HTTP/1.1 200 OK\r\nx-a: 1\r\n\r\n" if head else answer(b"second"))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        await client.send(get().replace(b"GET", b"HEAD"))
        assert (await next_answer(client, bodiless=True)).values(b"x-a") == [b"1"]
        await client.send(get())
        assert (await next_answer(client)).body == b"second"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answer_that_has_no_body_is_not_framed(status: bytes) -> None:
    _, received = await through(GET, b"HTTP/1.1 " + status + b"\r\nx-a: 1\r\n\r\n")
    assert (received.status, received.rest) == (int(status[:3]), b"")
    assert received.values(b"transfer-encoding") == []
    assert received.values(b"x-a") == [b"1"]


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhello\r\n0\r\n\r\n",
        b"00000005\r\nhello\r\n000\r\n\r\n",
        b'5;name=value;quoted="a b"\r\nhello\r\n0;last\r\n\r\n',
        b"1\r\nh\r\n1\r\ne\r\n1\r\nl\r\n1\r\nl\r\n1\r\no\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx-checksum: 1\r\nx-other: 2\r\n\r\n",
        b"5\r\nhello\r\n0\r\nx-checksum:\r\n\r\n",
    ],
    ids=["plain", "zeros", "extensions", "tiny", "trailers", "empty-trailer"],
)
@pytest.mark.parametrize("step", [1, 2, 5, 1000])
async def test_chunked(body: bytes, step: int) -> None:
    raw = CHUNKED + body
    _, received = await through(GET, *[raw[at : at + step] for at in range(0, len(raw), step)])
    assert received.body == b"hello"
    assert received.values(b"content-length") == []
    assert b"x-checksum" not in received.rest  # the proxy's own framing, which has no trailers


@pytest.mark.parametrize("digits", [b"1F40", b"1f40", b"01f40"])
async def test_chunk_size_in_either_case(digits: bytes) -> None:
    body = bytes(range(256)) * 32
    _, received = await through(GET, CHUNKED + digits + b"\r\n" + body[:8000] + b"\r\n0\r\n\r\n")
    assert received.body == body[:8000]


async def test_ten_thousand_chunks_in_one_segment() -> None:
    _, received = await through(GET, CHUNKED + chunk(b"x") * 10_000 + b"0\r\n\r\n")
    assert received.body == b"x" * 10_000


async def test_chunk_markers_inside_a_body_are_body() -> None:
    body = b"0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    _, received = await through(GET, CHUNKED + chunk(body) + b"0\r\n\r\n")
    assert received.body == body


@pytest.mark.parametrize("step", [1, 3, 64])
async def test_length_delimited_split_anywhere(step: int) -> None:
    raw = answer(b"\r\n\r\nHTTP/1.1 500 No\r\n\r\n" + b"x" * 50, b"x-a: 1")
    _, received = await through(GET, *[raw[at : at + step] for at in range(0, len(raw), step)])
    assert received.body == b"\r\n\r\nHTTP/1.1 500 No\r\n\r\n" + b"x" * 50
    assert received.values(b"content-length") == [b"%d" % len(received.body)]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-type: x/y\r\nconnection: keep-alive\r\n\r\n",
    ],
)
@pytest.mark.parametrize("body", [b"", b"until the end", b"x" * 300_000], ids=["empty", "short", "long"])
async def test_answer_that_ends_with_its_connection(head: bytes, body: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + body)

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        for number in range(2):  # the agent's own connection stays, production's cannot
            await client.send(get())
            assert (await next_answer(client)).body == body
            assert up.connections == number + 1


@pytest.mark.parametrize("codings", [b"gzip, chunked", b"gzip\r\ntransfer-encoding: Chunked"])
async def test_answer_in_chunks_does_not_end_with_its_connection(codings: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: " + codings + b"\r\n\r\n3\r\none\r\n")

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, post(b"{}"))
    assert received.received in (b"", b"one")
    with pytest.raises((EOFError, ValueError)):
        _ = received.body


async def test_http_1_0_answer_that_keeps_its_connection() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            await peer.send(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\n" + request.body)

    async with upstream(script) as up, sidecar(up.port) as side:
        assert [(await ask(side.port, post(b"%d" % number))).body for number in range(3)] == [b"0", b"1", b"2"]
        assert up.connections == 1


async def test_length_beside_a_coding_is_not_the_length() -> None:
    _, received = await through(
        GET,
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    )
    # llhttp refuses it; an intermediary may, or must go by the coding (RFC 9112, section 6.3)
    assert received.status == 502 or (received.body == b"hello" and received.values(b"content-length") == [])


@pytest.mark.parametrize("line", [b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.1 200 Fine, \xe4\xf6\xfc; (really)"])
async def test_reason_phrase_is_anything(line: bytes) -> None:
    _, received = await through(GET, line + b"\r\ncontent-length: 2\r\n\r\nok")
    assert (received.status, received.body) == (200, b"ok")


@pytest.mark.parametrize("before", [b"", CONTINUE, HINTS], ids=["alone", "100", "103"])
@pytest.mark.parametrize("reason", [b"Quite Created", b""])
@pytest.mark.parametrize("step", [1, 3, 1000])
async def test_reason_phrase_comes_back_or_none_but_no_part_of_it(before: bytes, reason: bytes, step: int) -> None:
    raw = before + answer(b"ok", status=b"201 " + reason)
    _, received = await through(GET, *[raw[at : at + step] for at in range(0, len(raw), step)])
    assert received.head.split(b"\r\n")[0] in (b"HTTP/1.1 201 " + reason, b"HTTP/1.1 201 ")


@pytest.mark.parametrize("status", [200, 299, 300, 399, 418, 429, 451, 499, 500, 529, 599])
async def test_any_final_status_comes_back(status: int) -> None:
    _, received = await through(GET, b"HTTP/1.1 %d Any\r\ncontent-length: 2\r\n\r\nok" % status)
    assert (received.status, received.body) == (status, b"ok")


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2x\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551618\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx-a : 1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n: 1\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx-a\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx-a: 1\x00\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nx-a: 1\rcontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 20 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 2000 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 099 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 600 OK\r\ncontent-length: 2\r\n\r\nok",
        b"ICY 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"<html>not HTTP at all</html>",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"\r\n\r\n\r\n",
        CONTINUE,
    ],
)
async def test_head_that_is_none_is_a_502(response: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response)

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, post(b"{}"))
        assert received.status == 502
        assert received.json()["error"]["code"] in ("protocol", "closed")
        assert (await ask(side.port, post(b"{}"))).status == 502
        assert up.connections == 2


@pytest.mark.parametrize(
    "broken",
    [b"zz\r\nmore\r\n", b"-1\r\nm\r\n", b"4\r\nmoreX", b"4\nmore\r\n0\r\n\r\n", b"10000000000000000\r\nmore", b"\r\n"],
    ids=["letters", "minus", "no-line-end", "bare-lf", "overflow", "empty"],
)
async def test_broken_chunk_breaks_the_answer_off(broken: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"good"))
        await peer.send(broken)
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port) as side:
        received = await ask(side.port, post(b"{}"))
        assert received.status == 200
        assert b"goodmore".startswith(received.received)
        assert received.received.startswith(b"good")
        with pytest.raises(EOFError):
            _ = received.body
        await side.metric_reaches(1, "upstream_errors_total", cause="protocol")


@pytest.mark.parametrize(
    "surplus",
    [
        b"x",
        b"\x00" * 1000,
        answer(b"poison"),
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=["byte", "zeros", "answer", "interim", "408", "request"],
)
@pytest.mark.parametrize(
    "first",
    [answer(b"x"), CHUNKED + b"1\r\nx\r\n0\r\n\r\n", b"HTTP/1.1 204 No Content\r\n\r\n"],
    ids=["length", "chunked", "204"],
)
async def test_garbage_behind_an_answer_reaches_nobody(first: bytes, surplus: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(first + surplus)
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        for number in range(2):
            await client.send(get())
            received = await next_answer(client)
            assert received.status == int(first[9:12])
            assert received.rest == b"" if received.status == 204 else received.body == b"x"
            assert up.connections == number + 1
