"""Registration of the training side, in memory that outlives its process."""

from __future__ import annotations

import mmap

SIZE = 16
"""Bytes: the number, and the store in which it means something."""


class Registration:
    """The number of the training side's last registration, for the next process that takes its place.

    That one starts once the one before is gone for certain, so that it need not wait for a lease to run out.

    Args:
        memory: `SIZE` bytes that both processes see; None for some that only forked processes see.
        store: stands for the store; a number that was noted for another one is not read.
    """

    def __init__(self, memory: memoryview | None = None, store: int = 0) -> None:
        self._cells = (memoryview(mmap.mmap(-1, SIZE)) if memory is None else memory).cast("B").cast("Q")
        self._store = store

    def read(self) -> int:
        """0 before the first."""
        return self._cells[0] if self._cells[1] == self._store else 0

    def note(self, sidecar: int) -> None:
        self._cells[0] = 0  # a reader between the two finds none, and not one of another store
        self._cells[1] = self._store
        self._cells[0] = sidecar
