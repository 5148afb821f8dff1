"""A request that two readers could read differently is refused before production hears of it (RFC 9112)."""

from __future__ import annotations

import pytest
from framing import chunk, reaching_production

START = b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\n"
CHUNKED = START + b"transfer-encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nhost: s\r\n\r\n"

BAD_HEADS = {
    "length-and-coding": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding-and-length": b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n",
    "two-lengths": b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "list-of-lengths": b"content-length: 2, 3\r\n\r\n{}",
    "length-plus": b"content-length: +2\r\n\r\n{}",
    "length-minus": b"content-length: -2\r\n\r\n{}",
    "length-hexadecimal": b"content-length: 0x2\r\n\r\n{}",
    "length-letters": b"content-length: 2x\r\n\r\n{}",
    "length-empty": b"content-length:\r\n\r\n",
    "length-of-spaced-digits": b"content-length: 1 2\r\n\r\n{}",
    "length-overflow": b"content-length: 18446744073709551618\r\n\r\n{}",
    "coding-not-final": b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "coding-unknown": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding-identity": b"transfer-encoding: identity\r\n\r\n{}",
    "coding-with-control-character": b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space-before-colon": b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "tab-before-colon": b"content-length\t: 2\r\n\r\n{}",
    "leading-space": b" transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded": b"x-a: 1\r\n content-length: 2\r\n\r\n{}",
    "folded-coding": b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare-lf-in-head": b"x-a: 1\ncontent-length: 2\r\n\r\n{}",
    "bare-lf-at-the-end": b"content-length: 2\r\n\n{}",
    "bare-cr-in-value": b"x-a: 1\rcontent-length: 2\r\n\r\n{}",
    "nul-in-value": b"x-a: 1\x00\r\ncontent-length: 2\r\n\r\n{}",
    "nul-in-name": b"x\x00a: 1\r\ncontent-length: 2\r\n\r\n{}",
    "no-colon": b"x-a\r\ncontent-length: 2\r\n\r\n{}",
    "empty-name": b": 1\r\ncontent-length: 2\r\n\r\n{}",
}


def refused(received: bytes) -> bool:
    return received.startswith(b"HTTP/1.1 400 ") and received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("rest", BAD_HEADS.values(), ids=BAD_HEADS)
async def test_ambiguous_head(rest: bytes) -> None:
    received, whole, connections = await reaching_production(START + rest + SMUGGLED)
    assert refused(received)
    assert (whole, connections) == ([], 0)


@pytest.mark.parametrize(
    "line",
    [
        b"POST /v1/x HTTP/1.1 \r\n",
        b"POST /v1/x y HTTP/1.1\r\n",
        b"POST /v1/x HTTP/1.1\n",
        b"POST /v1/x HTTP/1.2.3\r\n",
        b"PO ST /v1/x HTTP/1.1\r\n",
        b"P\x00ST /v1/x HTTP/1.1\r\n",
        b"POST /v1/\x00 HTTP/1.1\r\n",
        b"POST v1/x HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
    ],
)
async def test_request_line_that_is_none(line: bytes) -> None:
    received, whole, connections = await reaching_production(line + b"host: s\r\ncontent-length: 0\r\n\r\n")
    assert refused(received)
    assert (whole, connections) == ([], 0)


@pytest.mark.parametrize("version", [b"", b" HTTP/0.9", b" HTTP/2.0", b" HTTP/3.0"])
async def test_version_that_nobody_speaks_here(version: bytes) -> None:
    request = b"POST /v1/x" + version + b"\r\nhost: s\r\ncontent-length: 2\r\n\r\n{}"
    received, whole, connections = await reaching_production(request)
    assert received.split(b" ", 2)[1] in (b"400", b"505")
    assert (whole, connections) == ([], 0)


BAD_CHUNKS = {
    "letters": b"zz\r\n{}\r\n0\r\n\r\n",
    "empty": b"\r\n{}\r\n0\r\n\r\n",
    "minus": b"-2\r\n{}\r\n0\r\n\r\n",
    "plus": b"+2\r\n{}\r\n0\r\n\r\n",
    "prefix": b"0x2\r\n{}\r\n0\r\n\r\n",
    "spaces": b"2 2\r\n{}\r\n0\r\n\r\n",
    "overflow": b"10000000000000002\r\n{}\r\n0\r\n\r\n",
    "bare-lf": b"2\n{}\r\n0\r\n\r\n",
    "too-long": b"1\r\n{}\r\n0\r\n\r\n",
    "no-line-end": b"2\r\n{}0\r\n\r\n",
    "lf-after-data": b"2\r\n{}\n0\r\n\r\n",
    "lf-in-extension": b"2;a\nb\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
@pytest.mark.parametrize("first", [b"", chunk(b"good")], ids=["first-chunk", "second-chunk"])
async def test_bad_chunk_that_comes_with_the_head(first: bytes, body: bytes) -> None:
    received, whole, _ = await reaching_production(CHUNKED + first + body + SMUGGLED)
    assert refused(received)
    assert whole == []


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
async def test_bad_chunk_in_mid_body_never_looks_whole(body: bytes) -> None:
    received, whole, _ = await reaching_production(CHUNKED + chunk(b"good"), body + SMUGGLED)
    assert refused(received)
    assert whole == []


@pytest.mark.parametrize("trailer", [b"x : 1", b"x\x00: 1", b" x: 1", b"x: 1\ny: 2", b"x"])
async def test_bad_trailer_never_looks_whole(trailer: bytes) -> None:
    received, whole, _ = await reaching_production(CHUNKED + chunk(b"good") + b"0\r\n" + trailer + b"\r\n\r\n")
    assert refused(received)
    assert whole == []


async def test_trailers_of_a_request_are_dropped_and_the_next_request_is_the_next() -> None:
    trailed = CHUNKED + chunk(b"good") + b"0\r\nx-trailer: 1\r\nhost: elsewhere\r\n\r\n"
    last = b"GET /v1/next HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n"
    received, whole, _ = await reaching_production(trailed + last)
    assert received.count(b"HTTP/1.1 200 ") == 2
    assert [(request.line, request.body) for request in whole] == [
        (b"POST /v1/chat/completions HTTP/1.1", b"good"),
        (b"GET /v1/next HTTP/1.1", b""),
    ]
    assert (whole[0].values(b"x-trailer"), len(whole[0].values(b"host"))) == ([], 1)


async def test_only_one_host_reaches_production() -> None:
    twice = b"GET /v1/x HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n"
    _, whole, _ = await reaching_production(twice)
    assert [len(request.values(b"host")) for request in whole] in ([], [1])


async def test_length_that_is_said_twice_alike_is_sent_once_or_refused() -> None:
    twice = START + b"connection: close\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}"
    received, whole, _ = await reaching_production(twice)
    assert refused(received) or [request.values(b"content-length") for request in whole] == [[b"2"]]


async def test_what_comes_behind_the_last_request_of_a_connection_is_not_read() -> None:
    last = b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
    received, whole, _ = await reaching_production(last + SMUGGLED)
    assert received.startswith(b"HTTP/1.1 200 ")
    assert [request.line for request in whole] == [b"POST /v1/x HTTP/1.1"]
