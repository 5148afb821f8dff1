"""Odd but legal requests and responses come through as they were sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Sequence

import pytest
from wire import LIMIT, Peer, Request, answer, ask, dial, post, sidecar, upstream


async def through(request: bytes, response: bytes | Sequence[bytes], **production: object) -> tuple[Request, object]:
    """Send one request through the proxy to an upstream that answers with `response`."""
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        for part in [response] if isinstance(response, bytes) else response:
            await peer.send(part)

    async with upstream(script) as up, sidecar(up.port, **production) as side:
        got = await ask(side.port, request)
    return seen[0], got


ODD_JSON = (
    b'{ "model":"m" ,\r\n\t"messages":[],"unknown_field": {"deep":[1.0,1e3,-0]},'
    b'"dup":1,"dup":2,"\\u00e9":"\xc3\xa9"}  \n'
)


async def test_body_with_unknown_fields_and_odd_whitespace() -> None:
    request, response = await through(post(ODD_JSON), answer(ODD_JSON, b"content-type: application/json"))
    assert request.line == b"POST /v1/chat/completions HTTP/1.1"
    assert request.body == ODD_JSON
    assert response.status == 200
    assert response.body == ODD_JSON


async def test_request_headers_keep_order_duplicates_and_bytes() -> None:
    request, _ = await through(
        post(
            b"{}",
            b"Authorization: Bearer caller",
            b"X-Twice: one",
            b"Accept-Encoding: gzip;q=0.5, br",
            b"X-Twice: two",
            b"X-Latin: caf\xe9",
            b"X-Utf8: \xe2\x82\xac",
            b"X-Empty:",
            b"User-Agent: agent/1",
            b'Cookie: a=1; b="2"',
        ),
        answer(),
    )
    assert request.fields[1:] == [
        (b"Authorization", b"Bearer caller"),
        (b"X-Twice", b"one"),
        (b"Accept-Encoding", b"gzip;q=0.5, br"),
        (b"X-Twice", b"two"),
        (b"X-Latin", b"caf\xe9"),
        (b"X-Utf8", b"\xe2\x82\xac"),
        (b"X-Empty", b""),
        (b"User-Agent", b"agent/1"),
        (b"Cookie", b'a=1; b="2"'),
        (b"content-length", b"2"),
    ]


async def test_nothing_is_added_to_a_bare_request() -> None:
    request, _ = await through(b"POST /v1/x HTTP/1.1\r\nhost: sidecar\r\nconnection: close\r\n\r\n", answer())
    assert [name for name, _ in request.fields] == [b"host"]


async def test_hop_by_hop_and_own_headers_stay_here() -> None:
    request, _ = await through(
        post(
            b"{}",
            b"Connection: x-per-hop, content-length, keep-alive",
            b"X-Per-Hop: 1",
            b"Keep-Alive: timeout=5",
            b"Proxy-Authorization: Basic x",
            b"TE: trailers",
            b"X-Slipstream-Task-Id: t1",
            b"x-slipstream-anything: y",
            b"X-Slip: stays",
        ),
        answer(),
    )
    assert [name for name, _ in request.fields] == [b"host", b"X-Slip", b"content-length"]


async def test_host_is_productions() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(answer(request.values(b"host")[0]))

    async with upstream(script) as up, sidecar(up.port) as side:
        response = await ask(side.port, post(b"{}"))
    assert response.body == b"127.0.0.1:%d" % up.port


async def test_configured_key_replaces_the_callers() -> None:
    request, _ = await through(post(b"{}", b"authorization: Bearer caller"), answer(), api_key="sk-configured")
    assert request.values(b"authorization") == [b"Bearer sk-configured"]


@pytest.mark.parametrize(
    "target",
    [
        b"/v1/models/a%2Fb%20c%C3%A9",
        b"/v1//models//x/",
        b"/v1/x?q=%20+&&b=;c=[]{}&d=?/:@",
        b"/v1/../v1/./x",
        b"/v1",
        b"/v1/x?limit=1&limit=2&empty=",
    ],
)
async def test_path_and_query_are_not_normalised(target: bytes) -> None:
    request, _ = await through(b"GET " + target + b" HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n", answer())
    assert request.line == b"GET " + target + b" HTTP/1.1"


async def test_base_url_with_another_path() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(answer((await peer.request()).line))

    async with upstream(script) as up:
        base_url = f"http://127.0.0.1:{up.port}/openai/deployments/x/"
        async with sidecar(up.port, base_url=base_url) as side:
            response = await ask(side.port, post(b"{}", path=b"/v1/chat/completions?api-version=1"))
    assert response.body == b"POST /openai/deployments/x/chat/completions?api-version=1 HTTP/1.1"


@pytest.mark.parametrize(("target", "expected"), [(b"/v1", b"/"), (b"/v1?x=1", b"/?x=1"), (b"/v1/x", b"/x")])
async def test_base_url_without_a_path(target: bytes, expected: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(answer((await peer.request()).line))

    async with upstream(script) as up, sidecar(up.port, base_url=f"http://127.0.0.1:{up.port}") as side:
        response = await ask(side.port, b"GET " + target + b" HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n")
    assert response.body == b"GET " + expected + b" HTTP/1.1"


async def test_response_headers_keep_order_duplicates_and_bytes() -> None:
    _, response = await through(
        post(b"{}"),
        answer(
            b"{}",
            b"Set-Cookie: a=1; Path=/",
            b"X-Request-Id: req_1",
            b"Set-Cookie: b=2",
            b"Keep-Alive: timeout=5",
            b"Connection: keep-alive, x-per-hop",
            b"X-Per-Hop: 1",
            b"X-Latin: caf\xe9",
            b"X-Empty:",
            b"Server: upstream/1",
            b"Date: Thu, 01 Jan 1970 00:00:00 GMT",
        ),
    )
    assert response.fields == [
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"X-Request-Id", b"req_1"),
        (b"Set-Cookie", b"b=2"),
        (b"X-Latin", b"caf\xe9"),
        (b"X-Empty", b""),
        (b"Server", b"upstream/1"),
        (b"Date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
        (b"content-length", b"2"),
        (b"connection", b"close"),
    ]


async def test_gzip_stays_gzip() -> None:
    packed = gzip.compress(b'{"id": "x"}' * 100)
    request, response = await through(
        post(packed, b"content-encoding: gzip"), answer(packed, b"content-encoding: gzip")
    )
    assert request.body == packed
    assert response.values(b"content-encoding") == [b"gzip"]
    assert response.body == packed


async def test_empty_bodies() -> None:
    request, response = await through(post(b""), answer(b""))
    assert request.values(b"content-length") == [b"0"]
    assert (response.status, response.body) == (200, b"")


async def test_8_mib_both_ways() -> None:
    body = random.Random(1).randbytes(8 * 1024**2)
    request, response = await through(post(body), answer(body[::-1]))
    assert request.body == body
    assert response.body == body[::-1]


async def test_chunked_request_stays_chunked() -> None:
    pieces = [b"a", b"bc" * 500, b"\xe2\x82", b"\xac"]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    head = b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    request, _ = await through(head + framed, answer())
    assert request.values(b"transfer-encoding") == [b"chunked"]
    assert request.values(b"content-length") == []
    assert request.body == b"".join(pieces)


async def test_chunked_and_empty_request() -> None:
    head = b"POST /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    request, response = await through(head + b"0\r\n\r\n", answer())
    assert (request.body, response.status) == (b"", 200)


@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"PATCH", b"PUT", b"OPTIONS"])
async def test_any_method(method: bytes) -> None:
    request, response = await through(
        method + b" /v1/models/m HTTP/1.1\r\nhost: s\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc",
        answer(b"done", status=b"202 Accepted"),
    )
    assert request.line == method + b" /v1/models/m HTTP/1.1"
    assert request.body == b"abc"
    assert (response.status, response.body) == (202, b"done")


async def test_head_keeps_the_length_of_the_body_that_does_not_come() -> None:
    _, response = await through(
        b"HEAD /v1/models HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
    )
    assert response.values(b"content-length") == [b"1234"]
    assert response.rest == b""


@pytest.mark.parametrize(
    "head", [b"204 No Content\r\n", b'304 Not Modified\r\netag: "x"\r\n', b"304 Not Modified\r\ncontent-length: 9\r\n"]
)
async def test_statuses_without_a_body(head: bytes) -> None:
    _, response = await through(
        b"GET /v1/x HTTP/1.1\r\nhost: s\r\nconnection: close\r\n\r\n", b"HTTP/1.1 " + head + b"\r\n"
    )
    assert response.status == int(head[:3])
    assert response.rest == b""
    assert response.values(b"transfer-encoding") == []


@pytest.mark.parametrize("status", [b"400 Bad Request", b"401 Unauthorized", b"429 Too Many Requests", b"503 Busy"])
async def test_upstream_errors_come_back_as_they_are(status: bytes) -> None:
    body = b'{"error": {"message":"x"}}\n'
    _, response = await through(post(b"{}"), answer(body, b"retry-after: 7", status=status))
    assert response.status == int(status[:3])
    assert response.values(b"retry-after") == [b"7"]
    assert response.body == body


async def test_redirects_are_the_callers_to_follow() -> None:
    _, response = await through(post(b"{}"), answer(b"", b"location: /elsewhere", status=b"307 Temporary Redirect"))
    assert (response.status, response.values(b"location")) == (307, [b"/elsewhere"])


async def test_interim_responses_are_skipped() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    _, response = await through(post(b"{}"), [interim, answer(b"final")])
    assert (response.status, response.body, response.values(b"link")) == (200, b"final", [])


async def test_trailers_do_not_leak_into_the_next_response() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-trailer: 1\r\n\r\n")
        await peer.request()
        await peer.send(answer(b"b"))

    async with upstream(script) as up, sidecar(up.port) as side:
        first = await ask(side.port, post(b"{}"))
        second = await ask(side.port, post(b"{}"))
    assert (first.body, second.body) == (b"a", b"b")
    assert second.values(b"x-trailer") == []


async def test_expect_100_continue_is_answered_here_and_not_sent_on() -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(answer(b"%d %b" % (len(request.values(b"expect")), request.body)))

    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client, asyncio.timeout(LIMIT):
        head, _, body = post(b"{}", b"expect: 100-continue").partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)
        assert (await client.reader.read()).endswith(b"\r\n\r\n0 {}")


async def test_multipart_upload() -> None:
    body = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n\x00\xff\r\n--b--\r\n'
    request, _ = await through(
        post(body, b"content-type: multipart/form-data; boundary=b", path=b"/v1/files"), answer()
    )
    assert request.body == body
    assert request.values(b"content-type") == [b"multipart/form-data; boundary=b"]


async def test_100_concurrent_mixed_requests_do_not_mix() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            number = int(request.values(b"x-number")[0])
            body = b"%d:" % number + request.body
            if number % 3 == 0:
                await peer.send(answer(body))
            elif number % 3 == 1:
                await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                for start in range(0, len(body), 7000):
                    piece = body[start : start + 7000]
                    await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await asyncio.sleep(0)
                await peer.send(b"0\r\n\r\n")
            else:
                await peer.send(answer(body, status=b"500 Internal Server Error"))

    async with upstream(script) as up, sidecar(up.port) as side:

        async def one(number: int) -> None:
            body = json.dumps({"n": number, "pad": "x" * (number * 997 % 50_000)}).encode()
            response = await ask(side.port, post(body, b"x-number: %d" % number))
            assert response.status == (500 if number % 3 == 2 else 200)
            assert response.body == b"%d:" % number + body

        await asyncio.gather(*(one(number) for number in range(100)))
        await side.metric_reaches(0, "in_flight")
        assert side.metric("requests_total", status="2xx") == 67
        assert side.metric("requests_total", status="5xx") == 33
        assert side.metric("added_seconds_count") == 100
