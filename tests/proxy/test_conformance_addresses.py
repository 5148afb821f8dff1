"""A name may have several addresses, and an address may be IPv6."""

from __future__ import annotations

import asyncio
import socket

import pytest
from framing import echo
from network import full_listener, resolve
from ports import free_port
from wire import Peer, answer, ask, post, sidecar, upstream


async def test_address_that_refuses_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(echo) as up:
        refusing = [("127.0.0.1", free_port()), ("127.0.0.2", free_port())]
        resolve(monkeypatch, {"production.example": [*refusing, ("127.0.0.1", up.port)]})
        async with sidecar(1, base_url="http://production.example/v1") as side:
            assert (await ask(side.port, post(b"second"))).body == b"second"


async def test_address_that_is_silent_costs_less_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with full_listener() as silent:
        async with upstream(echo) as up:
            resolve(monkeypatch, {"production.example": [silent, ("127.0.0.1", up.port)]})
            async with sidecar(1, base_url="http://production.example/v1", connect_timeout="30s") as side:
                assert (await ask(side.port, post(b"second"))).body == b"second"
                assert side.metric("connect_seconds_sum") < 10


async def test_all_addresses_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = [free_port(), free_port()]
    resolve(monkeypatch, {"production.example": [("127.0.0.1", port) for port in ports]})
    async with sidecar(1, base_url="http://production.example/v1") as side:
        received = await ask(side.port, post(b"{}"))
    assert (received.status, received.json()["error"]["code"]) == (502, "connect")
    assert all(str(port) in received.json()["error"]["message"] for port in ports)


async def test_all_addresses_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    with full_listener() as first, full_listener() as second:
        resolve(monkeypatch, {"production.example": [first, second]})
        async with sidecar(1, base_url="http://production.example/v1", connect_timeout="500ms") as side:
            received = await ask(side.port, post(b"{}"))
    assert (received.status, received.json()["error"]["code"]) == (504, "connect_timeout")


async def test_name_is_resolved_anew_for_each_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"%d" % peer.writer.get_extra_info("sockname")[1], b"connection: close"))

    async with upstream(script) as first, upstream(script) as second:
        addresses = [("127.0.0.1", first.port)]
        resolve(monkeypatch, {"production.example": addresses})
        async with sidecar(1, base_url="http://production.example/v1") as side:
            assert (await ask(side.port, post(b"{}"))).body == b"%d" % first.port
            addresses[0] = ("127.0.0.1", second.port)  # as when production moves
            assert (await ask(side.port, post(b"{}"))).body == b"%d" % second.port


def ipv6_listener() -> socket.socket | None:
    """A listener on ::1, or None on a machine that has no IPv6."""
    try:
        return socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        return None


async def test_ipv6_address() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await Peer(reader, writer).request()
        writer.write(answer(request.values(b"host")[0], b"connection: close"))
        writer.close()

    listener = ipv6_listener()
    port = free_port() if listener is None else listener.getsockname()[1]
    async with sidecar(1, base_url=f"http://[::1]:{port}/v1") as side:
        if listener is None:
            received = await ask(side.port, post(b"{}"))
            assert (received.status, received.json()["error"]["code"]) == (502, "connect")
        else:
            async with await asyncio.start_server(serve, sock=listener):
                received = await ask(side.port, post(b"{}"))
            assert (received.status, received.body) == (200, b"[::1]:%d" % port)


async def test_ipv4_address_of_a_name_whose_ipv6_address_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(echo) as up:
        resolve(monkeypatch, {"production.example": [("::1", free_port()), ("127.0.0.1", up.port)]})
        async with sidecar(1, base_url="http://production.example/v1") as side:
            assert (await ask(side.port, post(b"fourth"))).body == b"fourth"
