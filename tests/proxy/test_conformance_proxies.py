"""Production through the HTTP proxy that the environment names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from framing import echo, kept_post, next_answer
from network import http_proxy, resolve
from ports import free_port
from wire import LIMIT, Peer, Request, answer, ask, dial, post, sidecar, upstream

CREDENTIALS = "user:s%40fe"
BASIC = b"Basic dXNlcjpzQGZl"


async def forwarding(peer: Peer, seen: list[Request]) -> None:
    """An HTTP proxy for plain http that answers in production's place."""
    while True:
        seen.append(await peer.request())
        await peer.send(answer(seen[-1].body, b"proxy-authenticate: Basic", b"via: 1.1 proxy"))


async def test_plain_requests_name_the_whole_url(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []
    async with upstream(lambda peer: forwarding(peer, seen)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="http://production.example:8000/openai") as side, dial(side.port) as client:
            for number in range(3):
                await client.send(kept_post(b"%d" % number, b"x-a: b", path=b"/v1/chat/completions?x=%2F"))
                assert (await next_answer(client)).body == b"%d" % number
        assert proxy.connections == 1
    for request in seen:
        assert request.line == b"POST http://production.example:8000/openai/chat/completions?x=%2F HTTP/1.1"
        assert request.values(b"host") == [b"production.example:8000"]
        assert request.values(b"x-a") == [b"b"]
        assert request.values(b"proxy-authorization") == []


@pytest.mark.parametrize(("target", "expected"), [(b"/v1", b"/"), (b"/v1?a=b", b"/?a=b"), (b"/v1/x", b"/x")])
async def test_plain_request_to_a_bare_host(target: bytes, expected: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []
    async with upstream(lambda peer: forwarding(peer, seen)) as proxy:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="http://production.example") as side:
            await ask(side.port, post(b"{}", path=target))
    assert seen[0].line == b"POST http://production.example" + expected + b" HTTP/1.1"


async def test_credentials_go_with_each_plain_request_and_the_agents_own_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Request] = []
    async with upstream(lambda peer: forwarding(peer, seen)) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"http://{CREDENTIALS}@127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="http://production.example/v1") as side:
            for _ in range(2):
                received = await ask(side.port, post(b"{}", b"proxy-authorization: Basic agents"))
                assert received.values(b"proxy-authenticate") == []
            exchange = await side.tap.next()
    assert [request.values(b"proxy-authorization") for request in seen] == [[BASIC], [BASIC]]
    assert BASIC not in [value for _, value in exchange.request_headers]


async def test_refusal_of_a_plain_request_is_the_proxys_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"who are you?", status=b"407 Proxy Authentication Required"))

    async with upstream(script) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="http://production.example/v1") as side:
            received = await ask(side.port, post(b"{}"))
    assert (received.status, received.body) == (407, b"who are you?")


@pytest.mark.parametrize(
    "environment",
    [
        {"NO_PROXY": "127.0.0.1"},
        {"no_proxy": "production.example, 127.0.0.1"},
        {"no_proxy": "*"},
        {"HTTP_PROXY": ""},
        {"http_proxy": ""},
    ],
)
async def test_exceptions_are_reached_directly(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with upstream(echo) as up, sidecar(up.port) as side:
        assert (await ask(side.port, post(b"direct"))).body == b"direct"


async def test_proxy_of_the_other_scheme_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    async with upstream(echo) as up, sidecar(up.port) as side:
        assert (await ask(side.port, post(b"direct"))).body == b"direct"


@pytest.mark.parametrize(
    "says",
    [
        (b"HTTP/1.1 200 Connection established\r\n\r\n",),
        (b"HTTP/1.0 200 OK\r\nproxy-agent: x\r\ncontent-length: 0\r\n\r\n",),
        (b"HTTP/1.1 2", b"00", b" OK\r", b"\n", b"x: y\r\n\r", b"\n"),
        (b"HTTP/1.1 299\r\n\r\n",),
    ],
    ids=["plain", "headers", "pieces", "other-2xx"],
)
async def test_https_goes_through_a_tunnel(
    says: tuple[bytes, ...], certified: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certified("DNS:production.example")
    monkeypatch.setenv("SSL_CERT_FILE", context.certificate)
    seen: list[Request] = []

    async def script(peer: Peer) -> None:
        while True:
            seen.append(await peer.request())
            await peer.send(answer(seen[-1].body))

    async with upstream(script, ssl=context) as up, http_proxy(up.port, says=says) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{CREDENTIALS}@127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="https://production.example:8443/v1") as side, dial(side.port) as client:
            for number in range(3):
                await client.send(kept_post(b"%d" % number))
                assert (await next_answer(client)).body == b"%d" % number
    assert [head.line for head in proxy.heads] == [b"CONNECT production.example:8443 HTTP/1.1"]
    assert proxy.heads[0].values(b"host") == [b"production.example:8443"]
    assert proxy.heads[0].values(b"proxy-authorization") == [BASIC]
    for request in seen:
        assert request.line == b"POST /v1/chat/completions HTTP/1.1"
        assert request.values(b"host") == [b"production.example:8443"]
        assert request.values(b"proxy-authorization") == []


async def test_tunnel_to_an_ipv6_address_and_the_default_port(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_proxy(says=(b"HTTP/1.1 403 No\r\n\r\n",)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="https://[2001:db8::1]/v1") as side:
            assert (await ask(side.port, post(b"{}"))).status == 502
    assert proxy.heads[0].line == b"CONNECT [2001:db8::1]:443 HTTP/1.1"
    assert proxy.heads[0].values(b"proxy-authorization") == []


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ((b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n",), "407 Proxy Auth"),
        ((b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno",), "403 Forbidden"),
        ((b"HTTP/1.1 502 \xe4\x1b[31m\r\n\r\n",), "502"),
        ((b"HTTP/1.1 302 Found\r\nlocation: http://login\r\n\r\n",), "302 Found"),
        ((b"HTTP/1.1 200 OK\r\n\r\nmore",), "more than an answer"),
        ((b"SSH-2.0-OpenSSH_9.6\r\n\r\n",), "not HTTP/1.1"),
        ((b"HTTP/1.1 200 OK\r\n",), "did not answer"),
        ((b"x" * 100_000,), "did not answer"),
        ((b"",), "did not answer"),
    ],
)
async def test_tunnel_that_is_not_opened_is_a_502_in_words(
    says: tuple[bytes, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with http_proxy(says=says) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{CREDENTIALS}@127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="https://production.example/v1") as side:
            received = await ask(side.port, post(b"{}"))
    error = received.json()["error"]
    assert (received.status, error["code"]) == (502, "connect")
    assert f"proxy 127.0.0.1:{proxy.port}" in error["message"]
    assert words in error["message"]
    assert "s@fe" not in error["message"]
    assert error["message"].isprintable()


async def test_silent_proxy_is_a_504(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_proxy(says=()) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with sidecar(1, base_url="https://production.example/v1", connect_timeout="100ms") as side:
            received = await ask(side.port, post(b"{}"))
            assert (received.status, received.json()["error"]["code"]) == (504, "connect_timeout")
            async with asyncio.timeout(LIMIT):
                while not proxy.gone:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_proxy_that_is_down_is_a_502(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{port}")
    async with sidecar(1, base_url=f"{scheme}://production.example/v1") as side:
        received = await ask(side.port, post(b"{}"))
    assert (received.status, received.json()["error"]["code"]) == (502, "connect")
    assert f"proxy 127.0.0.1:{port}" in received.json()["error"]["message"]


@pytest.mark.parametrize("trusted", [False, True], ids=["unknown-authority", "other-name"])
async def test_certificate_is_verified_through_the_tunnel(
    trusted: bool, certified: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certified("DNS:proxy.example" if trusted else "DNS:production.example")
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", context.certificate)
    async with upstream(echo, ssl=context) as up, http_proxy(up.port) as proxy:
        resolve(monkeypatch, {"proxy.example": [("127.0.0.1", proxy.port)]})
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
        async with sidecar(1, base_url="https://production.example/v1") as side:
            received = await ask(side.port, post(b"{}"))
    assert (received.status, received.json()["error"]["code"]) == (502, "connect")
    assert "certificate" in received.json()["error"]["message"]
