"""One worker of the proxy: listens, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from slipstream import shutdown
from slipstream.proxy.agent import AgentConnection
from slipstream.proxy.gateway import Gateway

BACKLOG = 4096


async def serve_agents(
    gateway: Gateway, listener: socket.socket, stop: asyncio.Event, grace: float = shutdown.ANSWERS
) -> None:
    """Answer agents on `listener` until `stop` is set; then end what is under way, for at most `grace` seconds."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: AgentConnection(gateway), sock=listener, backlog=BACKLOG)
    try:
        await stop.wait()
    finally:
        gateway.stopping = True
        server.close()
        for agent in list(gateway.agents):
            agent.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await gateway.deserted()
        for agent in list(gateway.agents):
            agent.abort()
        gateway.close()
