"""A line on stderr for each wait of a command that lasts longer than a few seconds: what is waited for, since when."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

FIRST = 3.0
"""Seconds of which nothing is said."""

AGAIN = 10.0
"""Seconds between two lines."""


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what is waited for, from a thread of its own, for as long as the block takes.

    Args:
        what: such as `pip to download a model`.
    """
    over, began = threading.Event(), time.monotonic()
    since = time.strftime("%H:%M:%S")

    def tell() -> None:
        pause = FIRST
        while not over.wait(pause):
            seconds = time.monotonic() - began
            with contextlib.suppress(OSError, ValueError):  # stderr is closed: nobody reads it
                print(f"slipstream: waiting for {what}, since {since} ({seconds:.0f} s)", file=sys.stderr, flush=True)
            pause = AGAIN

    teller = threading.Thread(target=tell, name="waiting", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
