"""TLS to production: verified against its name, and cut ones never look whole."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from typing import Any

import pytest
from framing import chunk, kept_post, next_answer
from network import resolve
from wire import LIMIT, Answer, Peer, answer, ask, dial, post, sidecar, upstream

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture
def localhost(certified: Any, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server context for the name localhost that the proxy trusts."""
    context = certified("DNS:localhost")
    monkeypatch.setenv("SSL_CERT_FILE", context.certificate)
    return context


async def echo(peer: Peer) -> None:
    while True:
        await peer.send(answer((await peer.request()).body))


async def test_server_sees_the_name_and_the_protocol(localhost: ssl.SSLContext) -> None:
    names: list[Any] = []
    localhost.sni_callback = lambda _, name, __: names.append(name)
    localhost.set_alpn_protocols(["h2", "http/1.1"])
    protocols: list[Any] = []

    async def script(peer: Peer) -> None:
        protocols.append(peer.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        request = await peer.request()
        await peer.send(answer(request.values(b"host")[0]))

    async with (
        upstream(script, ssl=localhost) as up,
        sidecar(up.port, base_url=f"https://localhost:{up.port}/v1") as side,
    ):
        received = await ask(side.port, post(b"{}"))
    assert (received.status, received.body) == (200, b"localhost:%d" % up.port)
    assert (names, protocols) == (["localhost"], ["http/1.1"])


async def test_address_has_no_server_name(self_signed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[Any] = []
    self_signed.sni_callback = lambda _, name, __: names.append(name)
    monkeypatch.setenv("SSL_CERT_FILE", self_signed.certificate)
    async with upstream(echo, ssl=self_signed) as up, sidecar(up.port, scheme="https") as side:
        assert (await ask(side.port, post(b"ok"))).body == b"ok"
    assert names == [None]


@pytest.mark.parametrize(
    ("certified_for", "asked"),
    [
        ("DNS:other.example", "localhost"),
        ("DNS:*.localhost", "localhost"),
        ("IP:127.0.0.1", "localhost"),
        ("DNS:localhost", "127.0.0.1"),
        ("IP:127.0.0.2", "127.0.0.1"),
    ],
)
async def test_certificate_for_another_name_is_refused(
    certified_for: str, asked: str, certified: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = False

    async def script(peer: Peer) -> None:
        nonlocal reached
        await peer.head()
        reached = True

    context = certified(certified_for)
    monkeypatch.setenv("SSL_CERT_FILE", context.certificate)
    async with (
        upstream(script, ssl=context) as up,
        sidecar(up.port, base_url=f"https://{asked}:{up.port}/v1") as side,
    ):
        received = await ask(side.port, post(b"{}", b"authorization: Bearer secret"))
    assert (received.status, received.json()["error"]["code"]) == (502, "connect")
    assert "certificate" in received.json()["error"]["message"]
    assert not reached


async def test_name_that_cannot_be_verified_is_a_502(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(echo) as up:
        resolve(monkeypatch, {".localhost": [("127.0.0.1", up.port)]})
        async with sidecar(1, base_url="https://.localhost/v1") as side:
            received = await ask(side.port, post(b"{}"))
    assert (received.status, received.json()["error"]["code"]) == (502, "connect")


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x28"])
async def test_handshake_that_fails_is_a_502(says: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.send(says)

    async with upstream(script) as up, sidecar(up.port, scheme="https") as side:
        received = await ask(side.port, post(b"{}"))
        assert (received.status, received.json()["error"]["code"]) == (502, "connect")
        assert side.metric("upstream_errors_total", cause="connect") == 1


async def test_handshake_that_does_not_end_is_a_504() -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()
        closed.set()

    closed = asyncio.Event()
    async with upstream(script) as up, sidecar(up.port, scheme="https", connect_timeout="100ms") as side:
        received = await ask(side.port, post(b"{}"))
        assert (received.status, received.json()["error"]["code"]) == (504, "connect_timeout")
        await asyncio.wait_for(closed.wait(), LIMIT)


async def test_connection_is_kept_and_handshakes_are_few(localhost: ssl.SSLContext) -> None:
    async with (
        upstream(echo, ssl=localhost) as up,
        sidecar(up.port, base_url=f"https://localhost:{up.port}/v1") as side,
        dial(side.port) as client,
    ):
        for number in range(10):
            await client.send(kept_post(b"%d" % number))
            assert (await next_answer(client)).body == b"%d" % number
        assert up.connections == 1


async def test_8_mib_both_ways_over_tls(localhost: ssl.SSLContext) -> None:
    body = random.Random(1).randbytes(8 * 1024**2)
    async with (
        upstream(echo, ssl=localhost) as up,
        sidecar(up.port, base_url=f"https://localhost:{up.port}/v1") as side,
    ):
        assert (await ask(side.port, post(body))).body == body


async def test_each_event_arrives_before_the_next_is_sent_over_tls(localhost: ssl.SSLContext) -> None:
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        for number in range(5):
            await peer.send(chunk(b"data: %d\n\n" % number))
            await asyncio.wait_for(received.wait(), LIMIT)
            received.clear()
        await peer.send(b"0\r\n\r\n")

    async with (
        upstream(script, ssl=localhost) as up,
        sidecar(up.port, base_url=f"https://localhost:{up.port}/v1") as side,
        dial(side.port) as client,
    ):
        await client.send(post(b"{}"))
        for number in range(5):
            await asyncio.wait_for(client.reader.readuntil(b"data: %d\n\n" % number), LIMIT)
            received.set()
        assert await client.reader.read() == b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", CHUNKED + b"64\r\n", b"HTTP/1.1 200 OK\r\n\r\n"],
    ids=["length", "chunked", "close"],
)
@pytest.mark.parametrize("cut", ["reset", "end"])
async def test_connection_cut_below_tls_breaks_the_answer_off(head: bytes, cut: str, localhost: ssl.SSLContext) -> None:
    seen = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + b"partial")
        await seen.wait()
        if cut == "reset":
            peer.reset()
        else:
            peer.writer.transport.abort()  # no close_notify, by which TLS tells an end from a cut (RFC 9112, 9.8)

    async with (
        upstream(script, ssl=localhost) as up,
        sidecar(up.port, base_url=f"https://localhost:{up.port}/v1") as side,
        dial(side.port) as client,
    ):
        await client.send(post(b"{}"))
        await client.reader.readuntil(b"partial")
        seen.set()
        rest = await asyncio.wait_for(client.reader.read(), LIMIT)
        assert b"\r\n0\r\n" not in rest
        exchange = await side.tap.next()
        assert (exchange.complete, exchange.error) == (False, "closed")


async def test_answer_that_ends_with_its_connection_over_tls(localhost: ssl.SSLContext) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nwhole")

    async with (
        upstream(script, ssl=localhost) as up,
        sidecar(up.port, base_url=f"https://localhost:{up.port}/v1") as side,
    ):
        assert (await ask(side.port, post(b"{}"))).body == b"whole"
        assert (await side.tap.next()).complete


@pytest.mark.parametrize("framed", [True, False], ids=["length", "close"])
async def test_an_answer_before_the_end_of_its_connection_reaches_a_slow_caller_whole(
    framed: bool, localhost: ssl.SSLContext
) -> None:
    body = random.Random(2).randbytes(3_000_000)
    length = b"content-length: %d\r\n" % len(body) if framed else b""

    def produce(listener: socket.socket) -> None:
        """Answer one request, and close as most servers do: at once, and not when the other end has closed too."""
        connection, _ = listener.accept()
        connection.settimeout(LIMIT)
        with localhost.wrap_socket(connection, server_side=True) as peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\n%b\r\n%b" % (length, body))
            peer.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as caller:
        listener.settimeout(LIMIT)
        port = listener.getsockname()[1]
        producing = asyncio.create_task(asyncio.to_thread(produce, listener))
        async with sidecar(port, base_url=f"https://localhost:{port}/v1", send_buffer=32 * 1024) as side:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
            caller.setblocking(False)
            loop, received = asyncio.get_running_loop(), b""
            await loop.sock_connect(caller, ("127.0.0.1", side.port))
            await loop.sock_sendall(caller, post(b"{}", path=b"/v1/models"))
            async with asyncio.timeout(LIMIT):
                while data := await loop.sock_recv(caller, 32 * 1024):
                    received += data
                    await asyncio.sleep(0.002)  # slower than production, which has closed before all is read
        await producing
    head, _, rest = received.partition(b"\r\n\r\n")
    assert Answer(head + b"\r\n\r\n", rest).body == body
