"""The pipe between a process and the reader of its log."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path


class LogPipe:
    """Reads what a process logs into a file, until it is stalled.

    Attributes:
        writer: the descriptor that the process gets.
    """

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab", buffering=0)
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.read_on()

    def read_on(self) -> None:
        asyncio.get_running_loop().add_reader(self._reader, self._read)

    def stall(self) -> None:
        """Read no more, and leave no room for another byte."""
        asyncio.get_running_loop().remove_reader(self._reader)
        filling = os.open(f"/proc/self/fd/{self.writer}", os.O_WRONLY | os.O_NONBLOCK)  # the writer itself may block
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filling, b"\n" * 4096)
        os.close(filling)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        self._read()
        os.close(self._reader)
        os.close(self.writer)
        self._log.close()

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._reader, 2**16):
                self._log.write(piece)
