"""`slipstream serve`: the proxy's workers and the training side, as processes of one program.

        agents ──▶ worker 0 … worker N-1 ──▶ production
                      │            │
             captures │            │ everything that is not /v1/        (two Unix sockets)
                      ▼            ▼
                      training side: stages, control API, store

Nothing that the training side does can hold a worker's interpreter, and nothing that happens to it, its death
included, ends an answer of production.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import structlog
import uvloop

from slipstream import memory, shutdown
from slipstream.access.ledger import Book, KeyUse
from slipstream.errors import SlipstreamError, StoreAway
from slipstream.proxy import open_files
from slipstream.proxy.capture_ipc import Receivers, Sender
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.guard import guard_for
from slipstream.proxy.limits import AgentLimits
from slipstream.proxy.metrics import ProxyMetrics, SharedCounters
from slipstream.proxy.server import serve_agents
from slipstream.proxy.upstreams import control_route, production_route
from slipstream.serve import prefork
from slipstream.serve.prefork import Program, Pulse
from slipstream.serve.sockets import CAPTURES, CONTROL, Sockets, open_sockets
from slipstream.serve.starting import Start
from slipstream.settings.sidecar import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

_log = structlog.get_logger(__name__)

_COLLECT_AFTER = 200_000
_COLLECT_STATEMENTS_AFTER = 20_000
"""Objects that a process makes and keeps before cycles are looked for among them: a worker of the proxy, and the
training side. SQLAlchemy's statements are cycles and hold what they were to write: about 100 MB of them, at a
worker's number."""

_KEPT_EACH = 5.0
"""Seconds between two times that a worker looks after itself; a leak takes hours to matter."""

_BEAT = 5.0
"""Seconds between two beats of a worker's pulse. Its loop waits for nothing, and one that does not turn for a minute
holds agents up whose connections the kernel goes on handing to it."""

_WORKER_AGAIN = 1.0
_TRAINING_AGAIN = 30.0
"""Longest seconds until one that dies again and again is started again: a worker's start costs some milliseconds, and
connections wait for it; the training side's costs a second of CPU, which traffic has a use for."""


def serve(settings: Settings) -> int:
    """Run the sidecar until SIGTERM or SIGINT, and end it in order; returns the exit code.

    Raises:
        ConfigError: the address cannot be listened on, or production cannot be reached as configured.
    """
    workers = settings.proxy.workers
    open_files.raise_limit()
    _warn_of_few_open_files(settings)
    with open_sockets(settings.listen, workers) as sockets:  # first: a second sidecar must not touch the store
        counters = SharedCounters(workers)
        production_route(settings.production, os.environ, counters.row(0))  # what is wrong with it is said once, here
        guard_for(settings, Book(sockets.ledger, 0))
        proxy = [
            Program(
                name=f"proxy-{number}",
                main=partial(_worker, settings, sockets, counters, number, pulse),
                grace=shutdown.WORKER,
                longest_delay=_WORKER_AGAIN,
                pulse=pulse,
            )
            for number, pulse in enumerate(Pulse() for _ in range(workers))
        ]
        training = Program(
            name="training",
            main=partial(_training, settings, sockets, counters),
            grace=shutdown.TRAINING,
            longest_delay=_TRAINING_AGAIN,
        )
        memory.settle()
        gc.collect()
        gc.freeze()  # what is loaded is shared by all processes, and no collection goes through it
        host, port = sockets.agents[0].getsockname()[:2]
        _log.info("listening", host=host, port=port, workers=workers)
        return prefork.run(proxy, [training], ending=sockets.refuse_agents)


def _warn_of_few_open_files(settings: Settings) -> None:
    workers, most = settings.proxy.workers, open_files.allowed()
    if (found := open_files.shortage(settings.limits, workers, most)) is not None:
        _log.warning("few_open_files", found=found, fix=open_files.FIX)


async def run_worker(
    settings: Settings,
    sockets: Sockets,
    number: int,
    metrics: ProxyMetrics,
    environment: Mapping[str, str],
    stop: asyncio.Event,
    grace: float = shutdown.ANSWERS,
) -> None:
    """One worker of the proxy, until `stop` is set.

    Args:
        metrics: its row of the counters.
        grace: seconds for answers that are under way at the end.
    """
    capture = settings.capture
    tap = Sender(
        sockets.folder / CAPTURES,
        metrics,
        wanted=capture.rate > 0,
        limit=capture.queue,
        limit_bytes=capture.queue_bytes,
    )
    gateway = Gateway(
        production_route(settings.production, environment, metrics),
        control_route(sockets.folder / CONTROL),
        tap,
        metrics,
        max_body=capture.max_body,
        room=capture.queue_bytes,
        guard=guard_for(settings, Book(sockets.ledger, number)),
        limits=AgentLimits.share(settings.limits, workers=settings.proxy.workers, chat_body=settings.facade.max_body),
    )
    keeping = asyncio.create_task(_keep(tap, metrics))
    await serve_agents(gateway, sockets.agents[number], stop, grace)
    keeping.cancel()
    await tap.drain(shutdown.HAND_OVER)


async def _keep(tap: Sender, metrics: ProxyMetrics) -> None:
    """Count a worker's tasks, and give back what a backlog of captures took, once it is gone. Not at other times: it
    holds traffic up for some milliseconds."""
    while True:
        metrics.tasks(len(asyncio.all_tasks()))
        if tap.relieved():
            await memory.step()
        await asyncio.sleep(_KEPT_EACH)


async def _beat(pulse: Pulse) -> None:
    while True:
        pulse.beat()
        await asyncio.sleep(_BEAT)


async def run_training(settings: Settings, sockets: Sockets, counters: SharedCounters, stop: asyncio.Event) -> None:
    """The stages and the control API, until `stop` is set.

    Where the store is away it is waited for, and whoever asks is told so.

    Raises:
        ConfigError: the store cannot be opened.
        SlipstreamError: a stage cannot start; the log says why.
    """
    import uvicorn

    from slipstream.api.control import create_control
    from slipstream.sidecar import Sidecar

    sidecar = Sidecar(settings, counters, sockets.registered)
    sidecar.metrics.registry.register(KeyUse(sockets.ledger))

    receivers = Receivers(sidecar.capture.writer.record, sidecar.capture.writer.full)
    captures = contextlib.ExitStack()

    async def take_captures() -> None:
        await sidecar.start()
        server = await asyncio.get_running_loop().create_unix_server(receivers.connected, sock=sockets.captures)
        captures.callback(server.close)

    start = Start(take_captures, failed=stop.set)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await start.begin()
        yield
        await start.end()
        with contextlib.suppress(TimeoutError):  # the workers are still there where this process alone is to end
            async with asyncio.timeout(shutdown.HAND_OVER):
                await receivers.gone()
        captures.close()
        await sidecar.stop()

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # whoever runs this decides when it ends

        async def main_loop(self) -> None:
            await stop.wait()  # uvicorn's own wakes up ten times a second, and a core that is shared feels it

    server = Server(
        uvicorn.Config(
            create_control(sidecar, lifespan),
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
        await server.serve(sockets=[sockets.control])
    except SystemExit as error:
        raise SlipstreamError("the training side did not start, see above") from error
    if start.failure is not None:
        raise start.failure


def _worker(
    settings: Settings, sockets: Sockets, counters: SharedCounters, number: int, pulse: Pulse, parent: int
) -> None:
    for other in (*sockets.agents[:number], *sockets.agents[number + 1 :], sockets.control, sockets.captures):
        other.close()

    limits = open_files.fitted(settings.limits, settings.proxy.workers, open_files.allowed())
    fitting = settings.model_copy(update={"limits": limits})

    # Exchanges leave no cycles behind them, and thousands of copies may wait: going through them would hold traffic up.
    gc.set_threshold(_COLLECT_AFTER)

    async def main() -> None:
        stop = _stops_on(parent, lambda: None)
        beating = asyncio.create_task(_beat(pulse))
        await run_worker(fitting, sockets, number, counters.row(number), os.environ, stop)
        beating.cancel()

    uvloop.run(main())


def _training(settings: Settings, sockets: Sockets, counters: SharedCounters, parent: int) -> None:
    sockets.refuse_agents()

    def orphaned() -> None:
        """Another sidecar may be starting on this store; what is under way goes on from there."""
        shutil.rmtree(sockets.folder, ignore_errors=True)
        os._exit(1)

    import slipstream.api.control
    import slipstream.sidecar  # noqa: F401 - loaded before they are frozen

    gc.collect()
    gc.freeze()  # as in the parent: no collection goes through what stays for good
    gc.set_threshold(_COLLECT_STATEMENTS_AFTER)

    async def main() -> None:
        stop = _stops_on(parent, orphaned)
        await run_training(settings, sockets, counters, stop)

    uvloop.run(main())


def _stops_on(parent: int, orphaned: Callable[[], None]) -> asyncio.Event:
    """An event that SIGTERM sets, and the parent's death after calling `orphaned`."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def gone() -> None:
        loop.remove_reader(parent)
        orphaned()
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(parent, gone)
    return stop
