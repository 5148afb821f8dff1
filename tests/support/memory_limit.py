"""A limit of memory for a program and all its processes: a control group of either version of Linux's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class MemoryLimit:
    """A control group that `slipstream serve` is started in.

    Attributes:
        command: what its command is put behind.
    """

    def __init__(self, folder: Path, first: bool) -> None:
        self._folder = folder
        self._first = first
        self.command = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(folder))

    @property
    def most(self) -> int:
        """Return the most bytes that were in use."""
        return int((self._folder / ("memory.max_usage_in_bytes" if self._first else "memory.peak")).read_text())

    @property
    def kills(self) -> int:
        """Return how many processes were killed for want of memory."""
        counts = (self._folder / ("memory.oom_control" if self._first else "memory.events")).read_text()
        return int(dict(line.split() for line in counts.splitlines())["oom_kill"])


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[MemoryLimit | None]:
    """A limit of so many bytes; None where control groups cannot be made. Its processes have to have ended."""
    first = (_V1 / "cgroup.procs").exists()
    folder = (_V1 if first else _V2) / f"slipstream-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(size))
    except OSError:
        with contextlib.suppress(OSError):
            folder.rmdir()
        yield None
        return
    try:
        yield MemoryLimit(folder, first)
    finally:
        folder.rmdir()
