"""`slipstream serve`, and its halves `slipstream proxy` and `slipstream training`.

        agents ──▶ worker 0 … worker N-1 ──▶ production
                      │            │
             captures │            │ everything that is not /v1/        (two Unix sockets)
                      ▼            ▼
                      training side: stages, control API, store

Nothing that the training side does can hold a worker's interpreter, and nothing that happens to it, its death
included, ends an answer of production. Apart they do not share a parent, a log or a container either.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import structlog

from slipstream import __version__, shutdown
from slipstream.access.ledger import Book, Ledger
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.memory import trim
from slipstream.output import Output
from slipstream.proxy import open_files
from slipstream.proxy.guard import guard_for
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.tls import certificates
from slipstream.proxy.upstreams import production_route
from slipstream.serve import prefork
from slipstream.serve.children import REPLACED, Flag, Program, Pulse
from slipstream.serve.handover import FAILED, Half, Handover, inherited
from slipstream.serve.running import file_of
from slipstream.serve.shared import Shared, shared_in, shared_in_memory
from slipstream.serve.sockets import Sockets, open_sockets
from slipstream.serve.succession import Succession
from slipstream.serve.training import training_process
from slipstream.serve.worker import worker_process
from slipstream.settings.sidecar import Settings

_log = structlog.get_logger(__name__)

_WORKER_PATIENCE = 6
"""Looks, of 10 s, without a beat until a worker counts as hung. Its loop waits for nothing, and one that does not turn
for a minute holds agents up whose connections the kernel goes on handing to it."""

_TRAINING_PATIENCE = 18
"""The same of the training side: three minutes. Its transactions run in threads, but strategies and hooks of users run
in its loop, and a slow one may take its time: no agent waits for it, and what is under way would be done again."""

_WORKER_AGAIN = 1.0
_TRAINING_AGAIN = 30.0
"""Longest seconds until one that dies again and again is started again: a worker's start costs some milliseconds, and
connections wait for it; the training side's costs a second of CPU, which traffic has a use for."""


def run(half: Half, load: Callable[[], Settings], output: Output) -> int:
    """Run a half, or both, until SIGTERM or SIGINT, and end it in order; returns the exit code.

    Args:
        load: reads the configuration.
        output: stderr, which is relayed from here.

    Raises:
        ConfigError: the address cannot be listened on, or production cannot be reached as configured.
    """
    handover = inherited()
    try:
        return _run(half, load(), output, handover)
    except SlipstreamError as error:
        if handover is not None:
            handover.say(FAILED, str(error))
        raise


def _run(half: Half, settings: Settings, output: Output, handover: Handover | None) -> int:
    open_files.raise_limit()
    with open_sockets(settings, half, handover) as sockets:  # first: a second sidecar must not touch the store
        shared = _shared(half, settings, sockets.folder, handover)
        if half.proxies:
            _check(settings)
        programs = _proxy(settings, sockets, shared) if half.proxies else []
        training = [_training(settings, sockets, shared, output)] if half.trains else []
        trim.settle()
        gc.collect()
        gc.freeze()  # what is loaded is shared by all processes, and no collection goes through it
        if half.proxies:
            host, port = sockets.agents[0].getsockname()[:2]
            tls = settings.listen.tls is not None
            _log.info("listening", host=host, port=port, workers=settings.proxy.workers, tls=tls)
        hand_over = partial(_hand_over, half, sockets, shared)
        relay = Succession(handover, hand_over, file_of(sockets.folder, half), __version__, output)
        log = [_log_writer(sockets, output)] if output.replaced else []
        return prefork.run(programs, training, log, ending=sockets.refuse_agents, relay=relay)


def _check(settings: Settings) -> None:
    """Say once what is wrong with the proxy's part, and not in each worker.

    Raises:
        ConfigError: production cannot be reached as configured, or the keys or the certificate cannot be used.
    """
    workers, most = settings.proxy.workers, open_files.allowed()
    if (found := open_files.shortage(settings.limits, workers, most)) is not None:
        _log.warning("few_open_files", found=found, fix=open_files.FIX)
    production_route(settings.production, os.environ, SharedCounters(1).row(0))
    guard_for(settings, Book(Ledger(1), 0))
    certificates(settings.listen)


def _shared(half: Half, settings: Settings, folder: Path, handover: Handover | None) -> Shared:
    """Counters in memory where one program has both halves: what is in a file, the kernel writes to its disk, and a
    worker that counts may have to wait for that."""
    workers = settings.proxy.workers
    if half is Half.SERVE:
        return shared_in_memory(workers, None if handover is None else handover.counters)
    try:
        return shared_in(folder, workers)
    except OSError as error:
        raise ConfigError(f"proxy.sockets: expected a folder with room for a file, found {folder} ({error})") from error


def _proxy(settings: Settings, sockets: Sockets, shared: Shared) -> list[Program]:
    programs = []
    for number in range(settings.proxy.workers):
        pulse, serving = Pulse(), Flag()
        programs.append(
            Program(
                name=f"proxy-{number}",
                main=partial(worker_process, settings, sockets, shared, number, pulse, serving),
                grace=shutdown.WORKER,
                longest_delay=_WORKER_AGAIN,
                serving=serving,
                pulse=pulse,
                patience=_WORKER_PATIENCE,
            )
        )
    return programs


def _training(settings: Settings, sockets: Sockets, shared: Shared, output: Output) -> Program:
    pulse, serving = Pulse(), Flag()
    return Program(
        name="training",
        main=partial(training_process, settings, sockets, shared, output, pulse, serving),
        grace=shutdown.TRAINING,
        longest_delay=_TRAINING_AGAIN,
        serving=serving,
        alone=True,
        pulse=pulse,
        patience=_TRAINING_PATIENCE,
    )


def _log_writer(sockets: Sockets, output: Output) -> Program:
    def main(_: int) -> None:
        sockets.refuse_agents()  # it may outlive the parent, and connections would wait here
        sockets.leave_folder()
        for inner in (sockets.control, sockets.captures):
            if inner is not None:
                inner.close()
        signal.signal(REPLACED, signal.SIG_IGN)  # workers that leave still have something to say
        output.relay()

    return Program(name="log", main=main, grace=shutdown.LOG, longest_delay=_WORKER_AGAIN)


def _hand_over(half: Half, sockets: Sockets, shared: Shared, answers: int, first: int) -> Handover:
    return Handover(
        folder=sockets.folder,
        temporary=sockets.temporary,
        agents=tuple(listener.fileno() for listener in sockets.agents),
        listen=sockets.listen,
        control=None if sockets.control is None else sockets.control.fileno(),
        captures=None if sockets.captures is None else sockets.captures.fileno(),
        counters=shared.file if half is Half.SERVE else None,
        answers=answers,
        first=first,
    )
