"""The page: the share of users that the lane answers, in memory that all processes of one host have mapped.

The training side writes it. Each worker reads it for each request, so that what is written holds from the next request
on, in all of them, whatever the training side does by then.

    magic, layout, stopped │ sequence, length, checksum │ a `Split` in MessagePack

The sequence is odd while the page is written. A reader that finds it odd, or a checksum that does not fit, takes the
page for closed and looks again at the next request: then production answers, which is never wrong. `stopped` is a cell
of its own that a worker sets too, so that a kill needs no training side: it is 2 then, until the store knows, and 1
while the store has a kill. Magic and `stopped` stay where they are in every layout.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import zlib
from pathlib import Path

import msgspec
from xxhash import xxh3_64_intdigest

from slipstream.errors import SlipstreamError

_NAME = "serving"

_MAGIC = int.from_bytes(b"slipserv", "little")
_LAYOUT = 1
_BYTES = 4096
_CONTENT = 64
"""Bytes in front of the content."""

_NOTED, _UNNOTED = 1, 2
"""Values of the cell `stopped`, which is 0 while there is no kill."""

# Cells of 8 bytes.
_STOPPED, _SEQUENCE, _LENGTH, _CHECKSUM = 2, 3, 4, 5


_UNIT = 2.0**-53
"""53 bits are what a float holds exactly."""


class Split(msgspec.Struct, array_like=True, frozen=True):
    """The share of units that a version answers.

    Attributes:
        epoch: rises with each change.
        version: of the policy.
        share: of the units, above 0 and at most 1.
        salt: seed of the units' hashes, 64 bits.
        model: name by which the lane knows its model.
        lane: `serving.lane.base_url` for which this was decided.
    """

    epoch: int
    version: int
    share: float
    salt: int
    model: str
    lane: str

    @property
    def variant(self) -> str:
        """The name of who answers the units that it takes."""
        return variant_of(self.version)

    def takes(self, unit: int) -> bool:
        """Return whether the version answers this unit. A larger share takes the same units and others.

        The version is hashed too, so that the users of one version's trial are not always those of the next one's.

        Args:
            unit: 64 bits of hash.
        """
        drawn = xxh3_64_intdigest(unit.to_bytes(8, "little"), self.version)
        return (drawn >> 11) * _UNIT < self.share


def variant_of(version: int) -> str:
    """The name of a version among those who answer users."""
    return f"version:{version}"


PRODUCTION = "production"
"""The variant of answers of the production model."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Split).decode


class ServingPage:
    """The page of one host, mapped.

    Args:
        file: descriptor of the file, which is closed here.
    """

    def __init__(self, file: int) -> None:
        self._memory = memoryview(mmap.mmap(file, _BYTES))
        os.close(file)
        self._cells = self._memory.cast("Q")
        self._read_at: int | None = None
        self._split: Split | None = None
        self._written: bytes | None = None

    def split(self) -> Split | None:
        """Return what holds now; None where production answers everybody. Takes a tenth of a microsecond."""
        cells = self._cells
        if cells[_STOPPED]:
            return None
        if cells[_SEQUENCE] != self._read_at:
            self._read()
        return self._split

    def write(self, split: Split | None) -> None:
        """Have all workers go by this from their next request on. One process alone may write."""
        cells = self._cells
        content = b"" if split is None else _encode(split)
        if len(content) > _BYTES - _CONTENT:
            raise SlipstreamError("serving.lane.model: expected a name that fits on a page of memory")
        if content == self._written:
            return
        sequence = (cells[_SEQUENCE] | 1) + 1
        cells[_SEQUENCE] = sequence - 1
        self._memory[_CONTENT : _CONTENT + len(content)] = content
        cells[_LENGTH], cells[_CHECKSUM] = len(content), _checksum(sequence, content)
        cells[_SEQUENCE] = sequence
        self._written = content

    @property
    def unnoted(self) -> bool:
        """Return whether a worker closed it by a kill of which the store does not know yet."""
        return self._cells[_STOPPED] == _UNNOTED

    def stop(self, *, noted: bool) -> None:
        """Close it for everybody at once, whatever else is written on it. Any process may.

        Args:
            noted: the store knows of it.
        """
        if noted or not self._cells[_STOPPED]:
            self._cells[_STOPPED] = _NOTED if noted else _UNNOTED

    def release(self, *, unnoted: bool) -> None:
        """Take a kill back: what is written on it holds again.

        Args:
            unnoted: also one of which the store does not know.
        """
        if unnoted or not self.unnoted:
            self._cells[_STOPPED] = 0

    def _read(self) -> None:
        cells = self._cells
        sequence, length = cells[_SEQUENCE], min(cells[_LENGTH], _BYTES - _CONTENT)
        content = bytes(self._memory[_CONTENT : _CONTENT + length])
        self._split = None
        if sequence % 2 or cells[_CHECKSUM] != _checksum(sequence, content) or cells[_SEQUENCE] != sequence:
            return  # it is being written; the next request looks again
        try:
            self._split = _decode(content) if content else None
        except msgspec.MsgspecError:  # another release wrote it
            self._split = None
        self._read_at = sequence


def close_page_of(folder: Path) -> None:
    """Close the page of processes that go on by it, if there is one: nobody writes it from now on.

    Raises:
        OSError: it cannot be written.
    """
    if (folder / _NAME).exists():
        page_in(folder).write(None)


def page_in(folder: Path) -> ServingPage:
    """The page of the processes that meet in this folder; made where it is missing.

    Raises:
        OSError: it cannot be made, such as on a full disk.
    """
    path = folder / _NAME
    lock = os.open(folder / f"{_NAME}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _fits(file):
            return ServingPage(file)
        _stop_other(file)
        os.close(file)
        fresh = path.with_name(f"{_NAME}.new")
        fresh.unlink(missing_ok=True)
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.posix_fallocate(file, 0, _BYTES)  # a write to a page without room on the disk would end the process
        os.pwrite(file, _MAGIC.to_bytes(8, "little") + _LAYOUT.to_bytes(8, "little"), 0)
        fresh.replace(path)
        return ServingPage(file)
    finally:
        os.close(lock)


def _fits(file: int) -> bool:
    head = os.pread(file, 16, 0)
    magic, layout = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    return (magic, layout) == (_MAGIC, _LAYOUT) and os.fstat(file).st_size == _BYTES


def _stop_other(file: int) -> None:
    """Close the page of a release with another layout: its workers read on in a file that nobody writes any more."""
    if os.pread(file, 8, 0) == _MAGIC.to_bytes(8, "little") and os.fstat(file).st_size > 8 * _STOPPED + 7:
        os.pwrite(file, (1).to_bytes(8, "little"), 8 * _STOPPED)


def _checksum(sequence: int, content: bytes) -> int:
    return zlib.crc32(content, sequence & 0xFFFFFFFF)
