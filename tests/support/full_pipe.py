"""A pipe whose reader has stalled."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


@contextlib.contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """A pipe without room for another byte: its two ends. What is in it are empty lines."""
    reader, writer = os.pipe()
    flags = fcntl.fcntl(writer, fcntl.F_GETFL)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 4096)
    fcntl.fcntl(writer, fcntl.F_SETFL, flags)
    try:
        yield reader, writer
    finally:
        for end in (reader, writer):
            with contextlib.suppress(OSError):
                os.close(end)
