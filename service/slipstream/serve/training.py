"""The training side: the stages, the control API, and the receiving end of what the workers captured."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from slipstream import shutdown
from slipstream.errors import SlipstreamError, StoreAway
from slipstream.output import Output
from slipstream.proxy.capture_ipc import Receivers
from slipstream.proxy.limits import EVENTS
from slipstream.proxy.server import Stop
from slipstream.serve.beating import beat
from slipstream.serve.children import Flag, Pulse
from slipstream.serve.dropped_lines import DroppedLines
from slipstream.serve.registered import registration_in
from slipstream.serve.shared import Shared
from slipstream.serve.signals import stop_on_signals
from slipstream.serve.sockets import Sockets
from slipstream.serve.starting import Start
from slipstream.serving.page import ServingPage, close_page_of, page_in
from slipstream.settings.sidecar import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

_COLLECT_AFTER = 20_000
"""Objects that the training side makes and keeps before cycles are looked for among them. SQLAlchemy's statements are
cycles and hold what they were to write: about 100 MB of them, at a worker's number."""

_LOOK = 0.05
"""Seconds between two looks at workers and at connections, of whose end there is no other sign."""

_LAST_REQUESTS = 1.0
"""Seconds for requests that came last; answers that take longer have uvicorn's own time for its end."""

_ALIVE = "training.alive"
"""File that the training side locks while it lives."""


async def run_training(
    settings: Settings,
    sockets: Sockets,
    shared: Shared,
    output: Output,
    stop: Stop,
    serving: Callable[[], None] = lambda: None,
) -> None:
    """The stages and the control API, until the order to stop.

    Where the store is away it is waited for, and whoever asks is told so. At the end the control API answers until the
    work is ended; what waits for the next process then waits in the queues of the sockets.

    Args:
        output: stderr, whose dropped lines are a metric.
        serving: called once it works, or waits for the store.

    Raises:
        ConfigError: the store cannot be opened.
        SlipstreamError: a stage cannot start; the log says why.
    """
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from slipstream.api.control import create_control
    from slipstream.sidecar import Sidecar

    before = registration_in(sockets.folder, settings.store.url)
    sidecar = Sidecar(settings, shared.counters, before, _page(settings, sockets.folder), shared.ledger)
    sidecar.metrics.registry.register(DroppedLines(output))

    receivers = Receivers(sidecar.capture.writer.record, sidecar.capture.writer.full)
    captures = contextlib.ExitStack()

    async def take_captures() -> None:
        await sidecar.start()
        server = await asyncio.get_running_loop().create_unix_server(receivers.connected, sock=sockets.captures)
        captures.callback(server.close)

    start = Start(take_captures, failed=stop.now.set)

    async def end_work() -> None:
        control.state.events.end()  # first: nothing may wait for streams that have no end
        await start.end()
        if sockets.agents and not stop.replaced.is_set():  # the workers may have been told at the same time
            await _until_gone(shared)
        captures.close()  # first: a worker that is sent away must come to the next process
        receivers.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(shutdown.HAND_OVER):
                await receivers.gone()
        await sidecar.end_work(commits=stop.now.is_set())

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await start.begin()
        serving()
        yield
        await sidecar.stop()

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # whoever runs this decides when it ends

        async def main_loop(self) -> None:
            await stop.wait()  # uvicorn's own wakes up ten times a second, and a core that is shared feels it
            await end_work()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            for listener in self.servers:
                listener.close()
            for _ in range(3):  # turns of the loop, after which what was accepted last is among the connections
                await asyncio.sleep(0)
            await self._last_requests()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, HttpToolsProtocol), "as the server is set up below"
                if connection.scope and connection.scope["path"] == EVENTS:  # its reader stands still
                    connection.transport.abort()
            if self.server_state.connections or self.server_state.tasks:
                await super().shutdown(sockets)
                return
            for listening in sockets or ():
                listening.close()
            await self.lifespan.shutdown()  # uvicorn's own sleeps for a tenth of a second before it

        async def _last_requests(self) -> None:
            """Wait for the answers to requests whose connections are open: uvicorn would close at once a connection of
            which it has read nothing."""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_REQUESTS):
                    while self.server_state.connections:  # noqa: ASYNC110 - uvicorn sets no event
                        await asyncio.sleep(_LOOK)

    control = create_control(sidecar, lifespan)
    server = Server(
        uvicorn.Config(
            control,
            http="httptools",
            ws="none",
            server_header=False,
            date_header=False,
            access_log=False,
            proxy_headers=False,
            log_config=None,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=20,
        )
    )
    with contextlib.suppress(StoreAway):
        await sidecar.database.open()  # before the server, which would hide what is wrong with it
        await sidecar.database.close()

    try:
        await server.serve(sockets=[] if sockets.control is None else [sockets.control])
    except SystemExit as error:
        raise SlipstreamError("the training side did not start, see above") from error
    if start.failure is not None:
        raise start.failure


def _page(settings: Settings, folder: Path) -> ServingPage | None:
    """The page that workers go by; None where none is mapped. Workers that were started with other settings may have
    one still, which is closed."""
    if settings.serving.routed is not None:
        return page_in(folder)
    close_page_of(folder)
    return None


async def _until_gone(shared: Shared) -> None:
    """Wait until no worker lives, but no longer than answers under way have."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(shutdown.WORKER):
            while shared.has_workers():  # noqa: ASYNC110 - other processes set no event
                await asyncio.sleep(_LOOK)


def training_process(
    settings: Settings, sockets: Sockets, shared: Shared, output: Output, pulse: Pulse, serving: Flag, parent: int
) -> None:
    """Run the training side as a child (`prefork.Program.main`), once no other one lives on this folder."""
    sockets.refuse_agents()
    sockets.leave_folder()

    def orphaned() -> None:
        """Another sidecar may be starting on this store; what is under way goes on from there."""
        if sockets.temporary:
            shutil.rmtree(sockets.folder, ignore_errors=True)
        os._exit(1)

    import slipstream.api.control
    import slipstream.sidecar  # noqa: F401 - loaded before they are frozen

    gc.collect()
    gc.freeze()  # as in the parent: no collection goes through what stays for good
    gc.set_threshold(_COLLECT_AFTER)

    async def main() -> None:
        stop = stop_on_signals(parent, orphaned)
        beating = asyncio.create_task(beat(pulse))
        await run_training(settings, sockets, shared, output, stop, serving.set)
        beating.cancel()

    with _alone(sockets.folder):
        uvloop.run(main())


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other training side lives: it would own the store, and what it holds there is given up only by its
    end. A kill unlocks it. SIGTERM ends the wait, and the process with it."""
    lock = os.open(folder / _ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
