"""What is production's and what is the control API's."""

from __future__ import annotations

import asyncio

import openai
import pytest
from websockets.exceptions import InvalidStatus
from wire import LIMIT, Peer, Request, answer, ask, dial, sidecar, upstream


def get(path: bytes, *fields: bytes) -> bytes:
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"host: s", b"connection: close", *fields, b"", b""])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/v1", b"production"),
        (b"/v1/", b"production"),
        (b"/v1?x", b"production"),
        (b"/v1/models", b"production"),
        (b"/", b"control /"),
        (b"/v1x", b"control /v1x"),
        (b"/v2/models", b"control /v2/models"),
        (b"/runs/t/0/v1/models", b"control /runs/t/0/v1/models"),
        (b"/tasks", b"control /tasks"),
    ],
)
async def test_v1_is_productions(path: bytes, expected: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"production"))

    async with upstream(script) as up, sidecar(up.port) as side:
        assert (await ask(side.port, get(path))).body == expected


HANDSHAKE = (
    *(b"connection: Upgrade", b"upgrade: websocket", b"sec-websocket-version: 13"),
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize("path", [b"/v1/responses", b"/v1/realtime?model=m", b"/runs/t/0/v1/responses"])
async def test_a_websocket_is_refused_at_once_and_counted(path: bytes) -> None:
    async def script(peer: Peer) -> None:
        raise AssertionError(await peer.request())

    async with upstream(script) as up, sidecar(up.port) as side:
        response = await ask(side.port, get(path, *HANDSHAKE))
        assert response.status == 426
        assert response.values(b"upgrade") == [b"HTTP/1.1"]
        error = response.json()["error"]
        assert error["type"] == "websocket_unsupported"
        assert "use HTTP with streaming" in error["message"]
        assert side.metric("refused_total", limit="websocket") == 1
        assert up.connections == 0


async def test_the_sdk_tells_that_a_websocket_of_the_responses_api_is_refused() -> None:
    async with sidecar(9) as side, openai.AsyncOpenAI(base_url=side.base_url, api_key="sk-agent") as client:
        with pytest.raises(InvalidStatus, match="426"):
            await client.responses.connect().enter()


@pytest.mark.parametrize(
    "framing", [b"content-length: 2\r\n\r\n{}", b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
)
async def test_a_body_that_the_upgrade_swallows_does_not_reach_production_without_itself(framing: bytes) -> None:
    reached: list[Request] = []

    async def script(peer: Peer) -> None:
        reached.append(await peer.head())
        await peer.send(answer(b"production"))

    request = b"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\nconnection: Upgrade\r\nupgrade: other/2\r\n"
    async with upstream(script) as up, sidecar(up.port) as side:
        response = await ask(side.port, request + framing)
        assert (response.status, response.json()["error"]["type"]) == (400, "upgrade_unsupported")
        assert reached == []
        bodiless = get(b"/v1/models", b"connection: Upgrade", b"upgrade: h2c")
        assert (await ask(side.port, bodiless)).body == b"production"


@pytest.mark.parametrize(
    "framing", [b"content-length: %d\r\n\r\n%b", b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"]
)
async def test_the_http2_offer_of_javas_client_is_ignored(framing: bytes) -> None:
    body = b'{"text": "\r\nUpgrade: h2c\r\n"}'

    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            assert (request.body, request.values(b"upgrade")) == (body, [])
            await peer.send(answer(b"production"))

    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: s\r\n"
        b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\nUpgrade: h2c\r\n"
    )
    whole = head + framing % (len(body), body)
    cut = whole.index(b"\r\n\r\n") + 4
    async with upstream(script) as up, sidecar(up.port) as side, dial(side.port) as client:
        for pieces in ([whole], [whole[:cut], whole[cut:]]):
            for piece in pieces:
                await client.send(piece)
            async with asyncio.timeout(LIMIT):
                assert (await client.reader.readuntil(b"production")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", [b"h2c", b"other/2"])
async def test_a_long_row_of_offers_in_one_piece_is_answered(protocol: bytes) -> None:
    """Each is read again behind the one before: within each other, a thousand would be too deep."""
    one = b"GET /healthz HTTP/1.1\r\nhost: s\r\nconnection: Upgrade\r\nupgrade: %b\r\n\r\n" % protocol
    async with sidecar(9) as side, dial(side.port) as client:
        await client.send(one * 1000 + get(b"/healthz"))
        async with asyncio.timeout(LIMIT):
            assert (await client.reader.read()).count(b"HTTP/1.1 200 ") == 1001
