"""The order to stop, as a child of the sidecar's program hears it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from slipstream.proxy.server import Stop
from slipstream.serve.children import REPLACED


def stop_on_signals(parent: int, orphaned: Callable[[], None]) -> Stop:
    """An order that SIGTERM gives, or SIGUSR1 if another process has taken this one's place.

    Args:
        parent: descriptor at which the parent's death is seen, which gives it too, after calling `orphaned`.
    """
    loop, stop = asyncio.get_running_loop(), Stop()

    def gone() -> None:
        loop.remove_reader(parent)
        orphaned()
        stop.now.set()

    loop.add_signal_handler(signal.SIGTERM, stop.now.set)
    loop.add_signal_handler(REPLACED, stop.replaced.set)
    loop.add_reader(parent, gone)
    return stop
