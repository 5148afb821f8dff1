"""The process of a training: its threads, its memory and the signals that end it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import torch

from slipstream.memory import trim

log = structlog.get_logger(__name__)


def settle() -> None:
    """Set up threads and memory, before anything is loaded.

    Half of the cores are used, unless OMP_NUM_THREADS is set: the Explorer needs the others, and threads that share a
    core wait for one another at each operation. With 2 busy cores, a step of 16 samples took 5 s in one thread and
    between 3 and 20 s in two. A large tensor goes back to the system when it is freed, and leaves no hole.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max((os.cpu_count() or 2) // 2, 1))
    trim.settle()


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first SIGTERM or SIGINT; the second one does what it does by default."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, _frame: object) -> None:
        log.info("stopping after this step", signal=signal.Signals(number).name)
        stop.set()
        for each, handler in previous.items():
            signal.signal(each, handler)

    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
