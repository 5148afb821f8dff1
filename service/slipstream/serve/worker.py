"""A worker of the proxy: agents on one side, production and the training side's Unix sockets on the other."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import socket

import uvloop

from slipstream import shutdown
from slipstream.access.ledger import Book
from slipstream.memory import trim
from slipstream.proxy import open_files
from slipstream.proxy.capture_ipc import Sender
from slipstream.proxy.gateway import Gateway
from slipstream.proxy.guard import guard_for
from slipstream.proxy.lane import Lane
from slipstream.proxy.limits import AgentLimits
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.routing import Routing
from slipstream.proxy.sample import Sample
from slipstream.proxy.server import Stop, serve_agents
from slipstream.proxy.tls import certificates
from slipstream.proxy.upstreams import control_route, production_route
from slipstream.serve.beating import beat
from slipstream.serve.children import Flag, Pulse
from slipstream.serve.shared import Shared
from slipstream.serve.signals import stop_on_signals
from slipstream.serve.sockets import CAPTURES, CONTROL, Sockets
from slipstream.serving.breaker import LaneBreaker
from slipstream.serving.page import page_in
from slipstream.settings.sidecar import Settings
from slipstream.tracing.context import TraceSample

_COLLECT_AFTER = 200_000
"""Objects that a worker makes and keeps before cycles are looked for among them. Exchanges leave no cycles behind them,
and thousands of copies may wait: going through them would hold traffic up."""

_KEPT_EACH = 5.0
"""Seconds between two times that a worker looks after itself; a leak takes hours to matter."""


async def run_worker(
    settings: Settings,
    folder: Path,
    listeners: tuple[socket, ...],
    counts: tuple[ProxyMetrics, Book],
    environment: Mapping[str, str],
    stop: Stop,
    serving: Callable[[], None] = lambda: None,
) -> None:
    """One worker of the proxy, until the order to stop.

    Args:
        folder: of the training side's Unix sockets.
        counts: its row of the counters, and of the ledger of keys.
        serving: called once it answers agents.
    """
    capture, (metrics, book) = settings.capture, counts
    tap = Sender(
        folder / CAPTURES,
        metrics,
        sample=Sample(capture.rate, settings.access.identity_headers),
        limit=capture.queue,
        limit_bytes=capture.queue_bytes,
    )
    gateway = Gateway(
        production_route(settings.production, environment, metrics),
        control_route(folder / CONTROL),
        tap,
        metrics,
        max_body=capture.max_body,
        room=capture.queue_bytes,
        guard=guard_for(settings, book),
        limits=AgentLimits.share(settings.limits, workers=settings.proxy.workers, chat_body=settings.facade.max_body),
        routing=_routing(settings, folder, metrics),
        traces=None if settings.otel.endpoint is None else TraceSample(settings.otel.ratio),
    )
    keeping = asyncio.create_task(_keep(tap, metrics))
    await serve_agents(gateway, listeners, stop, serving, certificates(settings.listen))
    keeping.cancel()
    await tap.drain(shutdown.HAND_OVER if stop.now.is_set() else shutdown.REPLACED_HAND_OVER)
    metrics.rest()


def _routing(settings: Settings, folder: Path, metrics: ProxyMetrics) -> Routing | None:
    """The decision on who answers users; None where production answers all of them, and no page is mapped."""
    serving = settings.serving
    if serving.routed is None:
        return None
    return Routing(
        page_in(folder),
        Lane(serving.routed, serving.first_byte_timeout, metrics),
        LaneBreaker(serving.breaker.failures, serving.breaker.pause),
        settings.access.identity_headers,
        max_body=serving.max_body,
        max_context=serving.routed.max_context,
        outcomes=settings.capture.rate > 0,
    )


async def _keep(tap: Sender, metrics: ProxyMetrics) -> None:
    """Count a worker's tasks, and give back what a backlog of captures took, once it is gone. Not at other times: it
    holds traffic up for some milliseconds."""
    while True:
        metrics.tasks(len(asyncio.all_tasks()))
        if tap.relieved():
            trim.trim()
        await asyncio.sleep(_KEPT_EACH)


def worker_process(
    settings: Settings, sockets: Sockets, shared: Shared, number: int, pulse: Pulse, serving: Flag, parent: int
) -> None:
    """Run a worker as a child (`prefork.Program.main`)."""
    sockets.leave_folder()
    mine = sockets.of_worker(number, settings.proxy.workers)
    for other in (*sockets.agents, sockets.control, sockets.captures):
        if other is not None and other not in mine:
            other.close()
    counts = shared.take_row()
    limits = open_files.fitted(settings.limits, settings.proxy.workers, open_files.allowed())
    fitting = settings.model_copy(update={"limits": limits})
    gc.set_threshold(_COLLECT_AFTER)

    async def main() -> None:
        stop = stop_on_signals(parent, lambda: None)
        beating = asyncio.create_task(beat(pulse))
        await run_worker(fitting, sockets.folder, mine, counts, os.environ, stop, serving.set)
        beating.cancel()

    uvloop.run(main())
