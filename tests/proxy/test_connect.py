"""A connection to production comes about in one of several ways, or fails in words and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop
from network import full_listener, http_proxy, resolve
from ports import free_port
from wire import LIMIT, Peer, until, upstream

from slipstream.errors import ConfigError
from slipstream.http.connect import Connector
from slipstream.http.errors import UpstreamError

HTTP, HTTPS = "http://production.example:8000/v1", "https://production.example/v1"

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(test)


def open_sockets() -> int:
    """Sockets of this process."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    return count


class Received(asyncio.Protocol):
    """A protocol that keeps what it gets."""

    def __init__(self) -> None:
        self.data = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize(
    ("base_url", "environment", "proxied"),
    [
        (HTTP, {}, False),
        (HTTP, {"HTTP_PROXY": "http://p:3128"}, True),
        (HTTP, {"http_proxy": "http://p:3128/"}, True),
        (HTTP, {"http_proxy": "p:3128"}, True),
        (HTTP, {"http_proxy": "http://[::1]:3128"}, True),
        (HTTP, {"ALL_PROXY": "http://p:3128"}, True),
        (HTTP, {"all_proxy": "http://p:3128"}, True),
        (HTTP, {"HTTPS_PROXY": "http://p:3128"}, False),
        (HTTP, {"http_proxy": "", "HTTP_PROXY": "http://p:3128"}, False),
        (HTTP, {"HTTP_PROXY": ""}, False),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "NO_PROXY": "production.example"}, False),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "no_proxy": "other, .example"}, False),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "no_proxy": "production.example:8000"}, False),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "no_proxy": "production.example:8001"}, True),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "no_proxy": "duction.example"}, True),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "no_proxy": "*"}, False),
        (HTTP, {"HTTP_PROXY": "http://p:3128", "no_proxy": "", "NO_PROXY": "*"}, True),
        ("http://[::1]:8000", {"HTTP_PROXY": "http://p:3128", "no_proxy": "::1"}, False),
        ("http://[::1]:8000", {"HTTP_PROXY": "http://p:3128", "no_proxy": "[::1]"}, False),
        ("http://[::1]:8000", {"HTTP_PROXY": "http://p:3128", "no_proxy": "::2"}, True),
    ],
)
def test_proxy_for_plain_http_is_named_by_the_environment(
    base_url: str, environment: dict[str, str], proxied: bool
) -> None:
    assert Connector(base_url, 1.0, environment).absolute_form is proxied


def test_requests_through_a_tunnel_are_ordinary_ones() -> None:
    connector = Connector(HTTPS, 1.0, {"HTTPS_PROXY": "http://user:secret@p:3128"})
    assert (connector.absolute_form, connector.proxy_authorization) == (False, None)


@pytest.mark.parametrize(
    ("credentials", "header"),
    [
        ("user:secret@", b"Basic dXNlcjpzZWNyZXQ="),
        ("us%40er:p%3Aw%2F%25@", b"Basic dXNAZXI6cDp3LyU="),
        ("user@", b"Basic dXNlcjo="),
        ("", None),
    ],
)
def test_credentials_of_the_proxy(credentials: str, header: bytes | None) -> None:
    connector = Connector(HTTP, 1.0, {"HTTP_PROXY": f"http://{credentials}p:3128"})
    assert connector.proxy_authorization == header


@pytest.mark.parametrize(
    "value",
    [
        "socks5://user:secret@p:1080",
        "https://user:secret@p:3128",
        "http://user:secret@p:port",
        "http://user:secret@p:99999",
        "http://user:secret@",
        "http://user:secret@p:3128/path",
        "http://user:secret@[::1:3128",
        "http://user:secret@a..b:3128",
    ],
)
@pytest.mark.parametrize(
    ("base_url", "variable"),
    [(HTTP, "HTTP_PROXY"), (HTTP, "http_proxy"), (HTTPS, "https_proxy"), (HTTPS, "ALL_PROXY")],
)
def test_wrong_proxy_is_refused_at_start_by_its_name_and_without_its_password(
    base_url: str, variable: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{variable}: ") as refusal:
        Connector(base_url, 1.0, {variable: value})
    assert "secret" not in str(refusal.value)


def test_wrong_proxy_that_is_not_used_matters_not() -> None:
    Connector(HTTP, 1.0, {"HTTPS_PROXY": "socks5://p:1080"})
    Connector(HTTP, 1.0, {"ALL_PROXY": "socks5://p:1080", "NO_PROXY": "production.example"})


@contextlib.asynccontextmanager
async def welcoming(**listen: Any) -> AsyncIterator[int]:
    """A server that speaks first; yields its port."""

    async def script(peer: Peer) -> None:
        await peer.send(b"welcome")
        await peer.gone()

    async with upstream(script, **listen) as up:
        yield up.port


Way = Callable[[], contextlib.AbstractAsyncContextManager[Connector]]


@pytest.fixture
def ways(certified: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Way]:
    """The ways in which a connection comes about."""
    context = certified("DNS:production.example")
    monkeypatch.setenv("SSL_CERT_FILE", context.certificate)

    @contextlib.asynccontextmanager
    async def plain() -> AsyncIterator[Connector]:
        async with welcoming() as port:
            yield Connector(f"http://127.0.0.1:{port}", LIMIT, {})

    @contextlib.asynccontextmanager
    async def several_addresses() -> AsyncIterator[Connector]:
        with full_listener() as silent:
            async with welcoming() as port:
                addresses = [("127.0.0.1", free_port()), silent, ("127.0.0.1", port)]
                resolve(monkeypatch, {"production.example": addresses})
                yield Connector("http://production.example", LIMIT, {})

    @contextlib.asynccontextmanager
    async def tls() -> AsyncIterator[Connector]:
        async with welcoming(ssl=context) as port:
            resolve(monkeypatch, {"production.example": [("127.0.0.1", port)]})
            yield Connector("https://production.example", LIMIT, {})

    @contextlib.asynccontextmanager
    async def tunnel() -> AsyncIterator[Connector]:
        async with welcoming(ssl=context) as port, http_proxy(port) as proxy:
            resolve(monkeypatch, {"proxy.example": [("127.0.0.1", proxy.port)]})
            yield Connector("https://production.example", LIMIT, {"HTTPS_PROXY": "http://proxy.example:1"})

    return {"plain": plain, "several-addresses": several_addresses, "tls": tls, "tunnel": tunnel}


WAYS = ["plain", "several-addresses", "tls", "tunnel"]


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("way", WAYS)
def test_connection_comes_about(loop_factory: Any, way: str, ways: dict[str, Way]) -> None:
    async def test() -> None:
        async with ways[way]() as connector:
            received = await connector.open(Received)
            await until(lambda: received.data == b"welcome")
            sock = received.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            received.transport.abort()

    run(loop_factory, test())


class CancelledAt:
    """Cancels the running task at the awaitable's n-th suspension: as it begins, or in the moment in which it ends."""

    def __init__(self, inner: Coroutine[Any, Any, Any], suspension: int, *, as_it_ends: bool) -> None:
        self._inner = inner
        self._left = suspension
        self._as_it_ends = as_it_ends

    def __await__(self) -> Any:
        task = asyncio.current_task()
        assert task is not None
        step = partial(self._inner.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as end:
                return end.value
            self._left -= 1
            if self._left == 0 and self._as_it_ends and waits_for is not None:
                waits_for.add_done_callback(lambda _: task.cancel())  # before the task's own callback
            elif self._left == 0:
                task.cancel()
            try:
                yield waits_for
                step = partial(self._inner.send, None)
            except BaseException as error:  # noqa: BLE001 - all of them are for the one inside
                step = partial(self._inner.throw, error)


@pytest.mark.sampled
@pytest.mark.parametrize("as_it_ends", [False, True], ids=["as-it-begins", "as-it-ends"])
@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("way", WAYS)
def test_cancelled_at_any_await_it_leaves_no_socket(
    loop_factory: Any, way: str, as_it_ends: bool, ways: dict[str, Way]
) -> None:
    async def test() -> None:
        async with ways[way]() as connector:

            async def attempt(suspension: int) -> Received:
                return await CancelledAt(connector.open(Received), suspension, as_it_ends=as_it_ends)

            (await connector.open(Received)).transport.abort()  # what the loop opens once is open now
            before = open_sockets()
            for _ in range(20):  # the other side, which is in this process too, closes its own a few turns later
                await asyncio.sleep(0.005)
                before = min(before, open_sockets())
            for suspension in range(1, 100):
                try:
                    received = await asyncio.wait_for(asyncio.create_task(attempt(suspension)), LIMIT)
                except asyncio.CancelledError:
                    continue
                received.transport.abort()
                break
            assert suspension > (1 if way == "plain" else 2), "it was never cancelled"
            await until(lambda: open_sockets() == before)

    run(loop_factory, test())


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("silent_at", ["connect", "tls", "CONNECT", "tls-in-tunnel"])
def test_one_limit_over_all_of_it(loop_factory: Any, silent_at: str) -> None:
    async def silence(peer: Peer) -> None:
        await peer.gone()

    async def test() -> None:
        async with contextlib.AsyncExitStack() as stack:
            up = await stack.enter_async_context(upstream(silence))
            base_url, environment = f"https://127.0.0.1:{up.port}", {}
            if silent_at == "connect":
                host, port = stack.enter_context(full_listener())
                base_url = f"http://{host}:{port}"
            elif silent_at != "tls":
                says = () if silent_at == "CONNECT" else (b"HTTP/1.1 200 OK\r\n\r\n",)
                proxy = await stack.enter_async_context(http_proxy(up.port if says else 0, says=says))
                environment = {"https_proxy": f"http://127.0.0.1:{proxy.port}"}
            before = open_sockets()
            with pytest.raises(UpstreamError, match=r"0\.1 s") as error:
                await asyncio.wait_for(Connector(base_url, 0.1, environment).open(Received), LIMIT)
            assert error.value.cause == "connect_timeout"
            assert (f"127.0.0.1:{proxy.port}" in str(error.value)) if environment else True
            await until(lambda: open_sockets() == before)

    run(loop_factory, test())


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
def test_refusal_by_all_addresses_says_what_each_said(loop_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        ports = [free_port(), free_port()]
        resolve(monkeypatch, {"production.example": [("127.0.0.1", port) for port in ports]})
        before = open_sockets()
        with pytest.raises(UpstreamError) as error:
            await Connector("http://production.example", LIMIT, {}).open(Received)
        assert error.value.cause == "connect"
        assert all(str(port) in str(error.value) for port in ports)
        assert open_sockets() == before

    run(loop_factory, test())


@pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"])
def test_failed_handshakes_leave_no_socket(loop_factory: Any, self_signed: ssl.SSLContext) -> None:
    async def test() -> None:
        async with welcoming() as plain_port, welcoming(ssl=self_signed) as untrusted_port:
            before = open_sockets()
            for port in (plain_port, untrusted_port, free_port()):
                with pytest.raises(UpstreamError) as error:
                    await Connector(f"https://127.0.0.1:{port}", LIMIT, {}).open(Received)
                assert error.value.cause == "connect"
            await until(lambda: open_sockets() == before)

    run(loop_factory, test())
