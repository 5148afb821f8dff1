"""Real servers for tests: uvicorn on a free port, in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from slipstream.proxy.server import server_config


@asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI application on 127.0.0.1; yields its base URL. Port 0 takes a free one."""
    server = uvicorn.Server(server_config(app, "127.0.0.1", port, log_level="error", timeout_graceful_shutdown=2))
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or task.done())
        assert server.started, "the server did not start"
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


async def until(condition: Callable[[], Any], seconds: float = 15.0, what: str = "") -> Any:
    """Poll a condition (plain or async) until it holds, and return its value; fail after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.01)
