"""The folder of a data set: rows in the files of a format, the provenance of each, a manifest and a card.

It is a snapshot: made whole or not at all, and read as it was when the reading began, even if it is replaced meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import pydantic

from slipstream.config.problems import describe
from slipstream.datasets import card, claim, config
from slipstream.datasets.claim import Claim, DatasetError, DatasetExists, DatasetMissing, claimed, opened
from slipstream.datasets.files import FileError, LineWriter, read_lines, write_lines
from slipstream.datasets.formats import Unsayable, columns, from_line, to_line
from slipstream.datasets.manifest import MANIFEST, Erasure, Manifest
from slipstream.datasets.row import Kind, Row
from slipstream.datasets.summary import Summary
from slipstream.jsontext import to_json

__all__ = [
    "SPLITS",
    "DatasetError",
    "DatasetExists",
    "DatasetMissing",
    "Manifest",
    "NewFolder",
    "delete",
    "list_folders",
    "manifest",
    "new_folder",
    "read_provenance",
    "read_rows",
    "remove_rows",
]

SPLITS = ("train", "held_out")
_PIECE = 1 << 20


class NewFolder:
    """A data set that is being made. Made by `new_folder`."""

    def __init__(self, held: Claim, dataset: config.Dataset, writers: Mapping[str, _Split], *, replacing: bool) -> None:
        self._claim = held
        self._dataset = dataset
        self._writers = writers
        self._replacing = replacing
        self._summary = Summary(SPLITS, dataset.seed)
        self._dropped: Counter[str] = Counter()
        self._says_tools = (dataset.format, dataset.kind) != ("trinity", Kind.PREFERENCE)

    def add(self, split: str, row: Row) -> bool:
        """Write a row, or count it among those dropped if the format cannot say it.

        Args:
            split: `train` or `held_out`.

        Returns:
            Whether it was written.
        """
        try:
            line = to_line(row, self._dataset.format)
        except Unsayable as error:
            self.drop(f"format_cannot_say:{error.reason}")
            return False
        self._add(split, row, line, row.provenance.written(row.digest))
        return True

    def drop(self, reason: str, count: int = 1) -> None:
        """Count rows that are not written.

        Args:
            reason: a short name; nothing of a conversation.
        """
        self._dropped[reason] += count

    def publish(self, about: Mapping[str, Any]) -> Manifest:
        """End the files, and put the folder in place. Nothing can be added after it.

        Args:
            about: more for the manifest and the card, of what JSON can say; see `Manifest.about`.

        Raises:
            DatasetExists: meanwhile there is one of the name.
        """
        return self._publish(about, datetime.now(UTC), ())

    def _add(self, split: str, row: Row, line: Mapping[str, Any], origin: Mapping[str, Any]) -> None:
        rows, provenance = self._writers[split]
        self._summary.add(split, row if self._says_tools else replace(row, tools=()), rows.write(line))
        provenance.write(origin)

    def _publish(self, about: Mapping[str, Any], made_at: datetime, erased: tuple[Erasure, ...]) -> Manifest:
        for split in self._writers.values():
            split.close()
        partial = self._claim.partial
        digests = {path.name: _sha256(path) for path in sorted(partial.iterdir())}
        made = Manifest(
            name=self._dataset.name,
            kind=self._dataset.kind,
            format=self._dataset.format,
            files=self._dataset.files,
            made_at=made_at,
            counts=self._summary.counts(),
            dropped=dict(self._dropped.most_common()),
            sha256=digests,
            digest=hashlib.sha256(to_json(digests)).hexdigest(),
            dataset=self._dataset.model_dump(mode="json", by_alias=True, exclude_defaults=True),
            about=dict(about),
            erased=erased,
        )
        (partial / "README.md").write_text(card.text(made), encoding="utf-8")
        (partial / MANIFEST).write_text(made.model_dump_json(indent=1), encoding="utf-8")
        self._claim.publish(replace=self._replacing)
        return made


class _Split(NamedTuple):
    """The two files of a split."""

    rows: LineWriter
    provenance: LineWriter

    def close(self) -> None:
        for file in self:
            file.close()


@contextlib.contextmanager
def new_folder(directory: Path, dataset: config.Dataset, *, replace: bool = False) -> Iterator[NewFolder]:
    """Make a data set: `add` its rows, then `publish`. If the block ends without that, nothing is left of it.

    Args:
        directory: of all data sets; it is made if it is missing.
        replace: put it in the place of one with its name, in one act; until then that one is read.

    Raises:
        DatasetExists: there is one of the name, or another process makes one.
        ConfigError: a package that the files need is not installed.
    """
    path = directory / dataset.name
    with claimed(path) as held:
        if path.exists() and not replace:
            raise DatasetExists(f"{path.name}: expected a new name, found a data set of it in {directory}")
        with _written(held, dataset) as writers:
            yield NewFolder(held, dataset, writers, replacing=replace)


def list_folders(directory: Path) -> list[Path]:
    """Return the folders of the data sets in a directory, by name. What died processes have left is put right."""
    return [directory / name for name in claim.names(directory)]


def manifest(folder: Path) -> Manifest:
    """Read the manifest of a data set.

    Raises:
        DatasetMissing: there is none.
        DatasetError: its manifest cannot be read; names the file and the key.
    """
    with opened(folder) as descriptor:
        return _manifest(folder, descriptor)


def read_rows(folder: Path, split: str) -> Iterator[Row]:
    """Read the rows of a split, in normal form (`formats/normal.py`), with constant memory.

    A preference in Trinity's format has its tools as text: see `formats/trinity.py`.

    Raises:
        DatasetMissing: there is none.
        DatasetError: a line is not as it was written; names the file and the line.
    """
    with opened(folder) as descriptor:
        made = _manifest(folder, descriptor)
        for row, _, _ in _read(folder, descriptor, made, split):
            yield row


def read_provenance(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """Read the provenance of a split's rows, without the rows.

    Raises:
        DatasetMissing: there is none.
        DatasetError, FileError: it cannot be read.
    """
    path = folder / f"{split}.provenance.jsonl"
    with opened(folder) as descriptor, _file(path, descriptor) as file:
        yield from read_lines(file, path, None)


def remove_rows(folder: Path, keep: Callable[[Mapping[str, Any]], bool]) -> int:
    """Remove rows, and note in the manifest that it was done. The files are written anew and put in place in one act.

    Args:
        keep: whether the row with this line of `*.provenance.jsonl` stays.

    Returns:
        How many were removed. With none the folder stays as it is.

    Raises:
        DatasetExists: another process is changing it; none was removed.
        DatasetMissing: there is none.
        DatasetError: a line is not as it was written.
    """
    with claimed(folder) as held, opened(folder) as descriptor:
        made = _manifest(folder, descriptor)
        dataset = config.Dataset.model_validate(made.dataset)
        removed: Counter[str] = Counter()
        tasks: set[str] = set()
        with _written(held, dataset) as writers:
            rebuilt = NewFolder(held, dataset, writers, replacing=True)
            for split in SPLITS:
                for row, line, origin in _read(folder, descriptor, made, split):
                    if keep(origin):
                        rebuilt._add(split, row, line, origin)
                    else:
                        removed[split] += 1
                        tasks.add(origin["task_hash"])
            if not removed:
                return 0
            for reason, count in made.dropped.items():
                rebuilt.drop(reason, count)
            erasure = Erasure(at=datetime.now(UTC), rows=dict(removed), task_hashes=tuple(sorted(tasks)))
            rebuilt._publish(made.about, made.made_at, (*made.erased, erasure))
    return removed.total()


def delete(folder: Path) -> None:
    """Delete a data set; no reader sees a part of it.

    Raises:
        DatasetExists: another process is changing it.
        DatasetMissing: there is none.
    """
    claim.remove(folder)


@contextlib.contextmanager
def _written(held: Claim, dataset: config.Dataset) -> Iterator[dict[str, _Split]]:
    """Begin the files of the splits. They are closed in any case."""
    with contextlib.ExitStack() as stack:
        writers = {}
        for split in SPLITS:
            rows = write_lines(held.partial / f"{split}.{dataset.files}", columns(dataset.format, dataset.kind))
            stack.callback(rows.close)
            provenance = write_lines(held.partial / f"{split}.provenance.jsonl", None)
            stack.callback(provenance.close)
            writers[split] = _Split(rows, provenance)
        yield writers


def _read(
    folder: Path, descriptor: int, made: Manifest, split: str
) -> Iterator[tuple[Row, dict[str, Any], dict[str, Any]]]:
    """The rows of a split, with their lines as they are."""
    rows, provenance = folder / f"{split}.{made.files}", folder / f"{split}.provenance.jsonl"
    with _file(rows, descriptor) as row_file, _file(provenance, descriptor) as provenance_file:
        written = read_lines(row_file, rows, columns(made.format, made.kind))
        lines = zip(written, read_lines(provenance_file, provenance, None), strict=True)
        for number in itertools.count(1):
            try:
                line, origin = next(lines)
                row = from_line(line, made.format, made.kind, origin)
            except StopIteration:
                return
            except FileError as error:
                raise DatasetError(str(error)) from error
            except (KeyError, TypeError, ValueError) as error:
                raise DatasetError(
                    f"{rows}: line {number}: expected a line as it was written, found {error!r}"
                ) from error
            yield row, line, origin


def _manifest(folder: Path, descriptor: int) -> Manifest:
    path = folder / MANIFEST
    try:
        with _file(path, descriptor) as file:
            return Manifest.model_validate_json(file.read())
    except pydantic.ValidationError as error:
        raise DatasetError(f"{path}: {'; '.join(describe(error, Manifest, {}))}") from error


def _file(path: Path, descriptor: int) -> IO[bytes]:
    """Open a file of the folder that is open, whatever stands in its place by now."""
    try:
        return os.fdopen(os.open(path.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=descriptor), "rb")
    except OSError as error:
        raise DatasetError(f"{path}: expected a file that can be read, found {error.strerror}") from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
