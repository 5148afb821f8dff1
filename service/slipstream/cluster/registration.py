"""Registration of the training side, in memory that outlives its process."""

from __future__ import annotations

import mmap


class Registration:
    """The number of the training side's last registration, for the next process that is forked in its place.

    The parent starts that one once the one before is gone for certain, so that it need not wait for a lease to run out.
    """

    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, 8)).cast("Q")

    def read(self) -> int:
        """0 before the first."""
        return self._cell[0]

    def note(self, sidecar: int) -> None:
        self._cell[0] = sidecar
