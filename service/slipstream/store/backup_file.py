"""The file of a backup: a zip archive with the rows of each table, and a manifest that says what has to be there.

A table is the member `tables/NAME`: frames of a length (4 bytes, big-endian) and a MessagePack array of rows, which are
arrays of values in the order of the manifest's columns. JSON is text, because MessagePack has no integers of more than
64 bits, and what was encrypted in the store is here as it was there. The manifest is written last, and the archive's
directory behind it: a file that was cut has neither.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
import pydantic
from pydantic import BaseModel, ConfigDict, Field

from slipstream.config.problems import describe
from slipstream.errors import SlipstreamError

Row = Sequence[Any]

_MANIFEST = "manifest.json"
_LENGTH = 4
_LEVEL = 1
"""Level of compression: bodies are packed already, and encrypted ones cannot be."""

_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    RuntimeError,
    ValueError,
    msgspec.DecodeError,
)
"""Errors of reading an archive that was cut or changed. zipfile raises RuntimeError for one that is encrypted, as a
changed bit says."""


class BackupError(SlipstreamError):
    """A backup cannot be written, or is none that can be restored."""


class TableEntry(BaseModel):
    """Rows and columns of one table in a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[str, ...]
    rows: int
    sha256: str
    """Digest of the frames."""


class Manifest(BaseModel):
    """Contents of a backup.

    Attributes:
        revision: of the store's schema.
        keys: fingerprints of those with which data in it is encrypted.
        tables: in an order in which each one refers to earlier ones only.
        numbers: the largest that a table's rows were given: see `numbering`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    slipstream: str
    revision: str
    made_at: datetime
    keys: tuple[str, ...] = ()
    tables: dict[str, TableEntry] = Field(default_factory=dict)
    numbers: dict[str, int] = Field(default_factory=dict)


class BackupWriter:
    """Writes tables into a backup. Made by `written`."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._tables: dict[str, TableEntry] = {}

    @contextmanager
    def table(self, name: str, columns: Sequence[str]) -> Iterator[TableWriter]:
        """Write a table, one after the other."""
        with self._archive.open(f"tables/{name}", "w", force_zip64=True) as member:
            writer = TableWriter(member)
            yield writer
        entry = TableEntry(columns=tuple(columns), rows=writer.rows, sha256=writer.digest.hexdigest())
        self._tables[name] = entry

    def end(self, manifest: Manifest) -> Manifest:
        """Write the manifest, with the tables that were written."""
        whole = manifest.model_copy(update={"tables": self._tables})
        self._archive.writestr(_MANIFEST, whole.model_dump_json(indent=1))
        return whole


class TableWriter:
    """Writes the rows of a table and counts them."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member
        self.rows = 0
        self.digest = hashlib.sha256()

    def write(self, rows: Sequence[Row]) -> None:
        packed = msgspec.msgpack.encode(rows)
        frame = len(packed).to_bytes(_LENGTH, "big") + packed
        self._member.write(frame)
        self.digest.update(frame)
        self.rows += len(rows)


@contextmanager
def written(path: Path) -> Iterator[BackupWriter]:
    """Write a backup that is there whole or not at all, for this user alone. A kill leaves a `PATH.….partial`.

    Raises:
        BackupError: the file is there already, came meanwhile, or cannot be written.
    """
    there = f"{path}: expected no such file, found one; a backup is never written over"
    if os.path.lexists(path):
        raise BackupError(there)
    partial: Path | None = None
    try:
        descriptor, name = tempfile.mkstemp(".partial", f"{path.name}.", path.parent)  # for this user alone
        partial = Path(name)
        with open(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as archive:
                yield BackupWriter(archive)
            file.flush()
            os.fsync(file.fileno())
        _publish(partial, path)
    except FileExistsError as error:
        raise BackupError(there) from error
    except OSError as error:
        raise BackupError(f"{path}: expected a file that can be written, found {error}") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _publish(partial: Path, path: Path) -> None:
    """Give a whole file its name, unless something has it: two backups to one name do not replace each other.

    Raises:
        FileExistsError: the name is taken.
    """
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: a kill before the rename leaves an empty file there
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # not every file system can
            os.fsync(folder)
    finally:
        os.close(folder)


class BackupReader:
    """A backup that is read. Made by `opened`."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self._path = path
        self._archive = archive
        self.manifest = manifest

    def rows(self, table: str) -> Iterator[Sequence[Row]]:
        """The rows of a table, some at a time.

        Raises:
            BackupError: they are not the rows that were written.
        """
        entry = self.manifest.tables[table]
        digest, rows = hashlib.sha256(), 0
        try:
            with self._archive.open(f"tables/{table}") as member:
                while head := member.read(_LENGTH):
                    packed = member.read(int.from_bytes(head, "big"))
                    digest.update(head + packed)
                    some = msgspec.msgpack.decode(packed, type=list[list[Any]])
                    rows += len(some)
                    yield some
        except _BROKEN as error:
            raise BackupError(f"{self._path}: {table}: expected the rows that were written, found {error}") from error
        if (digest.hexdigest(), rows) != (entry.sha256, entry.rows):
            raise BackupError(
                f"{self._path}: {table}: expected {entry.rows} rows with the checksum {entry.sha256}, found {rows} "
                f"with {digest.hexdigest()}"
            )

    def check(self) -> None:
        """Read all of it.

        Raises:
            BackupError: something is missing or was changed.
        """
        for name in self.manifest.tables:
            for _ in self.rows(name):
                pass


@contextmanager
def opened(path: Path) -> Iterator[BackupReader]:
    """Read a backup.

    Raises:
        BackupError: the file cannot be read, is no whole backup, or is of another format.
    """
    try:
        archive = zipfile.ZipFile(path)
        manifest = Manifest.model_validate_json(archive.read(_MANIFEST))
    except pydantic.ValidationError as error:
        raise BackupError(f"{path}: {_MANIFEST}: {'; '.join(describe(error, Manifest, {}))}") from error
    except _BROKEN as error:
        raise BackupError(f"{path}: expected a whole backup of slipstream, found {error}") from error
    except OSError as error:
        raise BackupError(f"{path}: expected a file that can be read, found {error}") from error
    with archive:
        yield BackupReader(path, archive, manifest)
