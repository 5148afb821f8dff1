"""Real servers for tests: uvicorn on a free port, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn

from slipstream.output import Output
from slipstream.proxy.server import Stop
from slipstream.serve.shared import shared_in_memory
from slipstream.serve.sockets import open_sockets
from slipstream.serve.training import run_training
from slipstream.serve.worker import run_worker
from slipstream.settings.sidecar import Settings


class _Server(uvicorn.Server):
    """Ends as soon as it is told to: uvicorn's own looks ten times a second, and sleeps as long for what is closed at
    once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.over = asyncio.Event()

    async def main_loop(self) -> None:
        await self.over.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in self.servers:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(3):  # in the next turn of the loop it is closed, in the one after that it is gone
            await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        else:
            await self.lifespan.shutdown()


@asynccontextmanager
async def serving(app: Any, port: int = 0, **tls: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on 127.0.0.1; yields its base URL.

    Args:
        port: 0 takes a free one.
        tls: uvicorn's options for it.
    """
    server = _Server(
        uvicorn.Config(
            app,
            "127.0.0.1",
            port,
            ws="none",
            server_header=False,
            date_header=False,  # scripted servers have clocks of their own
            access_log=False,
            log_config=None,
            log_level="error",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=2,
            **tls,
        )
    )
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or task.done())
        assert server.started, "the server did not start"
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.over.set()
        await task


@asynccontextmanager
async def sidecar(settings: Settings, verify: ssl.SSLContext | bool = True) -> AsyncIterator[str]:
    """The whole sidecar on a free port, its processes' work in the test's own event loop; yields its URL.

    `verify` is the client's part of TLS, where `listen.tls` asks for that.
    """
    stop_worker, stop_training = Stop(grace=2), Stop()
    shared = shared_in_memory(1)
    settings = settings.model_copy(
        update={"listen": settings.listen.model_copy(update={"host": "127.0.0.1", "port": 0})}
    )
    with open_sockets(settings) as sockets:
        training = asyncio.create_task(run_training(settings, sockets, shared, Output(), stop_training))
        worker = asyncio.create_task(
            run_worker(settings, sockets.folder, sockets.agents, shared.take_row(), {}, stop_worker)
        )
        scheme = "http" if settings.listen.tls is None else "https"
        url = f"{scheme}://127.0.0.1:{sockets.agents[0].getsockname()[1]}"
        try:
            async with httpx.AsyncClient(base_url=url, timeout=15, verify=verify) as client:
                answered = asyncio.create_task(client.get("/readyz"))
                await asyncio.wait([answered, training], return_when=asyncio.FIRST_COMPLETED)
                if training.done():
                    answered.cancel()
                    await training
                assert (await answered).status_code == 200
            yield url
        finally:
            stop_worker.now.set()
            await worker
            stop_training.now.set()
            await training


async def until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """Poll a condition (plain or async) until it holds, and return its value.

    Less and less often, down to 20 times a second: most conditions ask a sidecar that works on what is waited for.

    Args:
        seconds: that no working program takes, also on a machine that has other work: it is for one that hangs.
        what: what is waited for, where the condition does not say it.

    Raises:
        TimeoutError: it does not hold after `seconds`; says what it gave at last.
    """
    pause, value = 0.01, None
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                given = condition()
                value = await given if isinstance(given, Awaitable) else given
                if value:
                    return value
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, 0.05)
    except TimeoutError as error:
        if not limit.expired():
            raise
        wanted = what or "the condition holds"
        raise TimeoutError(f"{seconds:g} s are over before {wanted}; at last it gave {value!r}") from error
