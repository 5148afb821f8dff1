"""What the caller gets when production cannot be reached, is slow, or speaks no HTTP."""

from __future__ import annotations

import asyncio
import socket

import pytest
from ports import free_port
from wire import Peer, answer, ask, post, sidecar, upstream

from slipstream.errors import ConfigError
from slipstream.http.connect import Connector
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.upstreams import production_route
from slipstream.settings.production import Production


async def test_refused_connection_is_a_502_in_openais_format() -> None:
    async with sidecar(free_port()) as side:
        response = await ask(side.port, post(b"{}"))
        exchange = await side.tap.next()
        assert side.metric("upstream_errors_total", cause="connect") == 1
        assert side.metric("requests_total", status="5xx") == 1
    assert response.status == 502
    assert response.values(b"content-type") == [b"application/json"]
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("upstream_unreachable", "connect", None)
    assert "production model" in error["message"]
    assert (exchange.complete, exchange.error, exchange.status) == (False, "connect", None)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..invalid", "a" * 64 + ".invalid"])
async def test_unknown_host_is_a_502(host: str) -> None:
    async with sidecar(1, base_url=f"http://{host}/v1") as side:
        response = await ask(side.port, post(b"{}"))
    assert (response.status, response.json()["error"]["type"]) == (502, "upstream_unreachable")


async def test_a_fault_in_opening_a_connection_is_a_502_and_no_endless_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fault(*_: object) -> None:
        raise RuntimeError("of ours")

    monkeypatch.setattr(Connector, "open", fault)
    async with sidecar(1) as side:
        response = await ask(side.port, post(b"{}"))
    assert (response.status, response.json()["error"]["code"]) == (502, "connect")


async def test_silent_upstream_is_a_504() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port, first_byte_timeout="100ms") as side:
        response = await ask(side.port, post(b"{}"))
    error = response.json()["error"]
    assert (response.status, error["type"], error["code"]) == (504, "upstream_timeout", "first_byte_timeout")


async def test_interim_responses_do_not_stop_the_clock() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await peer.gone()

    async with upstream(script) as up, sidecar(up.port, first_byte_timeout="100ms") as side:
        assert (await ask(side.port, post(b"{}"))).status == 504


async def test_connection_that_does_not_come_about_is_a_504() -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)  # a queue that these two fill: further attempts get no answer
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        async with sidecar(listener.getsockname()[1], connect_timeout="100ms") as side:
            response = await ask(side.port, post(b"{}"))
    assert (response.status, response.json()["error"]["code"]) == (504, "connect_timeout")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 200 OK\r\nx-half", "closed"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "protocol"),
        (b"HTTP/1.1 abc\r\n\r\n", "protocol"),
        (b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n", "protocol"),
        (b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 2_000_000, "protocol"),
    ],
)
async def test_upstream_without_a_usable_answer_is_a_502(sent: bytes, code: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(sent)

    async with upstream(script) as up, sidecar(up.port) as side:
        response = await ask(side.port, post(b"{}"))
    assert (response.status, response.json()["error"]["code"]) == (502, code)


async def test_certificate_of_an_unknown_authority_is_a_502(self_signed) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(answer())

    async with upstream(script, ssl=self_signed) as up, sidecar(up.port, scheme="https") as side:
        response = await ask(side.port, post(b"{}"))
    assert (response.status, response.json()["error"]["code"]) == (502, "connect")
    assert "certificate" in response.json()["error"]["message"]


async def test_tls_with_a_trusted_certificate(self_signed, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(answer(request.body))

    monkeypatch.setenv("SSL_CERT_FILE", self_signed.certificate)
    async with upstream(script, ssl=self_signed) as up, sidecar(up.port, scheme="https") as side:
        response = await ask(side.port, post(b"over TLS"))
    assert (response.status, response.body) == (200, b"over TLS")


async def test_key_that_is_no_header_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match=r"production\.api_key"):
        production_route(Production(api_key="sk-with-newline\n"), {}, SharedCounters(1).row(0))


async def test_production_is_untouched_by_other_requests_failing() -> None:
    async def script(peer: Peer) -> None:
        while True:
            request = await peer.request()
            if request.body == b"bad":
                peer.reset()
                return
            await peer.send(answer(request.body))

    async with upstream(script) as up, sidecar(up.port) as side:
        bodies = [b"good" if number % 2 else b"bad" for number in range(20)]
        responses = await asyncio.gather(*(ask(side.port, post(body)) for body in bodies))
    assert [response.status for response in responses] == [200 if body == b"good" else 502 for body in bodies]
