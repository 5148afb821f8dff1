"""Counters that the processes of one sidecar share, in a file in memory or in the folder of the Unix sockets.

     header                           rows of SharedCounters      rows of Ledger
    │ magic, layout, boot, rows, used │ one a worker of the proxy │ one a worker of the proxy │

A worker owns the row whose byte it has locked, for as long as it lives: the workers of a sidecar and those of its
successor have rows of their own while both run. A file of another layout (a release that counts other things), or of an
earlier start of the machine, is replaced and not read; whoever has it mapped goes on with it.

The file is allocated when it is made, because a write to a page that a full disk has no room for ends the process.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slipstream.access import ledger
from slipstream.access.ledger import Book, Ledger
from slipstream.proxy import metrics
from slipstream.proxy.metrics import ProxyMetrics, SharedCounters

_NAME = "counters"

_FEWEST_ROWS = 16
_ROWS_EACH = 3
"""Rows for each worker: it, its successor, and one that still ends its answers."""

_HEADER = 4096
"""Bytes: a page of its own."""

_MAGIC = int.from_bytes(b"slipstrm", "little")
_LAYOUT = zlib.crc32(f"{metrics.LAYOUT} {ledger.ROW_BYTES}".encode())
_ROW_BYTES = metrics.ROW_BYTES + ledger.ROW_BYTES

# Cells of the header.
_BOOT, _ROWS, _USED = 2, 3, 4


class Shared:
    """The counters, mapped.

    Args:
        file: descriptor of the file, which stays open: closing it would give up the row.

    Attributes:
        counters: what the workers count.
        ledger: what each API key has used.
    """

    def __init__(self, file: int) -> None:
        self.file = file
        memory = memoryview(mmap.mmap(file, 0))
        self._header = memory[:_HEADER].cast("Q")
        rows = self._rows = self._header[_ROWS]
        end = _HEADER + rows * metrics.ROW_BYTES
        self.counters = SharedCounters(rows, memory[_HEADER:end])
        self.ledger = Ledger(rows, memory[end:], lambda: self._header[_USED])

    def take_row(self) -> tuple[ProxyMetrics, Book]:
        """Take a row that no living worker has, for the rest of this process.

        Raises:
            RuntimeError: each row is taken, because many workers of predecessors still end their answers.
        """
        with _alone(self.file):
            used = self._header[_USED]
            free = [row for row in range(min(used + 1, self._rows)) if _lock(self.file, row)]
            for row in free:
                self.counters.row(row)  # what a worker that died had under way is under way no more
            for row in free[1:]:
                fcntl.lockf(self.file, fcntl.LOCK_UN, 1, row)
            if not free:
                raise RuntimeError(f"all {self._rows} rows of counters are in use")
            self._header[_USED] = max(used, free[0] + 1)
        return self.counters.row(free[0]), Book(self.ledger, free[0])

    def has_workers(self) -> bool:
        """Return whether a worker lives, in another process than this one."""
        with _alone(self.file):
            for row in range(self._header[_USED]):
                if not _lock(self.file, row):
                    return True
                fcntl.lockf(self.file, fcntl.LOCK_UN, 1, row)
        return False


def shared_in_memory(workers: int, inherited: int | None = None) -> Shared:
    """Counters that are seen by those who are given their descriptor.

    Args:
        inherited: the predecessor's descriptor, which is used if it fits.
    """
    if inherited is not None and _fits(inherited, workers):
        return Shared(inherited)
    file = os.memfd_create("slipstream-counters", os.MFD_CLOEXEC)
    _prepare(file, workers)
    return Shared(file)


def shared_in(folder: Path, workers: int) -> Shared:
    """Counters that are seen by all who open this folder.

    Raises:
        OSError: they cannot be made, such as on a full disk.
    """
    path = folder / _NAME
    lock = os.open(folder / f"{_NAME}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _fits(file, workers):
            return Shared(file)
        os.close(file)
        fresh = path.with_name(f"{_NAME}.new")
        fresh.unlink(missing_ok=True)
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _prepare(file, workers)
        fresh.replace(path)
        return Shared(file)
    finally:
        os.close(lock)


def _prepare(file: int, workers: int) -> None:
    rows = max(_FEWEST_ROWS, workers * _ROWS_EACH)
    os.posix_fallocate(file, 0, _HEADER + rows * _ROW_BYTES)
    head = [_MAGIC, _LAYOUT, _boot(), rows, 0]
    os.pwrite(file, b"".join(cell.to_bytes(8, "little") for cell in head), 0)


def _fits(file: int, workers: int) -> bool:
    head = os.pread(file, 8 * 5, 0)
    magic, layout, boot, rows, _ = (int.from_bytes(head[at : at + 8], "little") for at in range(0, 40, 8))
    whole = os.fstat(file).st_size == _HEADER + rows * _ROW_BYTES
    return (magic, layout, boot) == (_MAGIC, _LAYOUT, _boot()) and whole and rows >= 2 * workers


def _boot() -> int:
    """A number of this start of the machine: minutes of a monotonic clock mean nothing after the next one."""
    try:
        return zlib.crc32(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    except OSError:
        return 0


@contextmanager
def _alone(file: int) -> Iterator[None]:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, _HEADER)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, _HEADER)


def _lock(file: int, row: int) -> bool:
    """Lock a row's byte, and return False if another process has it. The end of a process unlocks it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, row)
    except OSError:
        return False
    return True
