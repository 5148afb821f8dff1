"""Free memory that glibc's malloc keeps. With another C library nothing happens here."""

from __future__ import annotations

import contextlib
import ctypes
import time

TICK = 2.0
"""Seconds between two times that the training side gives free memory back, at least: it takes some 5 ms. A worker of
the proxy does so behind a backlog only, because its traffic would wait."""

_WORK = 0.1
"""Seconds of CPU between the two, so that an idle process is left alone."""

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_SETTINGS = {_M_MMAP_THRESHOLD: 128 * 1024, _M_ARENA_MAX: 2}
"""For mallopt(3). Left alone, the first of them rises with each large block that is let go of, and what is given back
to the system at the end of an arena falls with it; and each thread has an arena of its own, up to eight a core, where
what one takes and another lets go of leaves holes. So a training side under load and faults grew by 10 MB in three
minutes in which it kept nothing."""


def settle() -> None:
    """Set malloc up, for this process and those that are forked from it."""
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for parameter, value in _SETTINGS.items():
            library.mallopt(parameter, value)


def trim() -> None:
    """Give back free pages between used ones, by malloc_trim(3): malloc itself does so at an arena's end alone.

    No setting of malloc's environment takes its place: of 105 MB in holes, 105 stay with them and 3 after this.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class Trimmer:
    """Trims, as a stage of the training side.

    Under load a third of what it had taken was such holes, and slowly more: each burst left its own.
    """

    def __init__(self) -> None:
        self._spent = 0.0

    async def step(self) -> bool:
        """Trim if enough was done since the last time to have left something."""
        if time.process_time() - self._spent >= _WORK:
            trim()
            self._spent = time.process_time()
        return False
