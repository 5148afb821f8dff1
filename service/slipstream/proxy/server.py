"""One worker of the proxy: listens, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from slipstream import shutdown
from slipstream.proxy.agent import AgentConnection
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.tls import Certificates, TlsListener

BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Stop:
    """Order to a process to end.

    Attributes:
        now: answers under way have `grace` seconds from then on.
        replaced: another process has taken its place, and answers have the time of `shutdown.REPLACED_ANSWERS`.
        grace: seconds.
    """

    now: asyncio.Event = field(default_factory=asyncio.Event)
    replaced: asyncio.Event = field(default_factory=asyncio.Event)
    grace: float = shutdown.ANSWERS

    async def wait(self) -> None:
        """Wait for either."""
        await _first(self.now.wait(), self.replaced.wait())


async def serve_agents(
    gateway: Gateway,
    listeners: Sequence[socket.socket],
    stop: Stop,
    serving: Callable[[], None] = lambda: None,
    certificates: Certificates | None = None,
) -> None:
    """Answer agents until the order to stop; then end what is under way, in the time that it leaves.

    Args:
        serving: called once agents are answered.
        certificates: of TLS; None for plain HTTP.
    """
    servers = [await _listen(gateway, listener, certificates) for listener in listeners]
    handshakes = [server for server in servers if isinstance(server, TlsListener)]
    serving()
    try:
        await stop.wait()
    finally:
        gateway.draining = True
        for server in servers:
            server.close()
        for agent in list(gateway.agents):
            agent.end_stream()
        if not stop.now.is_set():
            await _first(_drained(gateway, handshakes), stop.now.wait(), asyncio.sleep(shutdown.REPLACED_ANSWERS))
        gateway.stopping = True
        for server in handshakes:
            server.abort()
        for agent in list(gateway.agents):
            agent.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(stop.grace):
                await gateway.deserted()
        for agent in list(gateway.agents):
            agent.abort()
        gateway.close()


async def _listen(
    gateway: Gateway, listener: socket.socket, certificates: Certificates | None
) -> asyncio.AbstractServer | TlsListener:
    if certificates is None:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: AgentConnection(gateway), sock=listener, backlog=BACKLOG)
    limits = gateway.limits
    server = TlsListener(
        listener,
        certificates,
        lambda: cast(asyncio.Protocol, AgentConnection(gateway)),
        timeout=limits.header_timeout,
        shutdown=limits.answer_timeout,
        most=limits.most_connections,
    )
    server.start()
    return server


async def _drained(gateway: Gateway, handshakes: Sequence[TlsListener]) -> None:
    """Wait for connections that were accepted, and then for the end of all."""
    for server in handshakes:
        await server.settled()
    await gateway.deserted()


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of them, and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
