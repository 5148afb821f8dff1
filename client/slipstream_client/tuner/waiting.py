"""A line about each wait of a tuning that lasts longer than a few seconds: what is waited for, since when."""

from __future__ import annotations

import sys
import time

FIRST = 3.0
"""Seconds of which nothing is said."""

AGAIN = 10.0
"""Seconds between two lines."""


class Wait:
    """A wait that begins now; the waiting code calls `goes_on` at each look.

    Args:
        what: such as `version 3`.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._since = time.strftime("%H:%M:%S")
        self._next = self._began + FIRST

    def goes_on(self, why: str = "") -> None:
        """Write a line to stderr, past a progress bar, if one is due.

        Args:
            why: what the last look found.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + AGAIN
        found = f": {why}" if why else ""
        from tqdm import tqdm  # here, because select_model can be imported without it

        tqdm.write(
            f"tune: waiting for {self._what}, since {self._since} ({now - self._began:.0f} s){found}", file=sys.stderr
        )
