"""Deletions of sessions and tasks, carried on to the data sets that hold rows of them.

Each deletion is noted in `erased.jsonl` beside the data sets, by hashes, for as long as the folder lives: longer than
the store remembers it. An export that was reading meanwhile applies what was noted as soon as its data set is in place,
and training does so before it reads one. For copies of data sets elsewhere, `slipstream dataset erase` applies the file
there.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slipstream.datasets import folder
from slipstream.datasets.row import hashed
from slipstream.errors import ConfigError, SlipstreamError

NOTES = "erased.jsonl"
_LOCK = ".lock"

Kind = Literal["session_id", "task_id"]


class NotesError(SlipstreamError):
    """The notes of deletions cannot be read; names file, line and what was expected."""


@dataclass(slots=True)
class Applied:
    """Result of deletions in the data sets of a folder.

    Attributes:
        rows: that were deleted, by the names of the data sets that had any.
        waiting: data sets that are being replaced: their export applies the deletion at its end.
        failed: data sets that could not be read, with the reason; the deletion is noted, and applied by the next one.
    """

    rows: dict[str, int] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def check(self, key: str, path: Path) -> None:
        """
        Raises:
            ConfigError: rows of the data set at `path`, which the setting `key` names, are still to be deleted.
        """
        if path.name in self.waiting:
            raise ConfigError(
                f"{key}: {path} is being replaced, and rows of it are to be deleted: start again when the export has "
                "ended"
            )
        if problem := self.failed.get(path.name):
            raise ConfigError(f"{key}: deletions could not be applied to {path}: {problem}")


@dataclass(frozen=True, slots=True)
class Deletion:
    """A session or a task that was deleted.

    Attributes:
        hash: of its reference, as in `provenance`.
        at: Unix seconds; what began later stays.
    """

    kind: Kind
    hash: str
    at: float

    def means(self, provenance: Mapping[str, Any]) -> bool:
        """Return whether a row with this provenance is to be deleted."""
        found = {hash_ for kind, hash_ in _named(provenance) if kind == self.kind}
        return self.hash in found and float(provenance.get("created_at") or 0.0) <= self.at


def deletion(kind: Kind, ref: str, at: float) -> Deletion:
    """A deletion of what has this reference, with its tenant."""
    return Deletion(kind, hashed(ref), at)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep others from showing a data set, or deleting in one, meanwhile. The folder is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / _LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def erase(directory: Path, deleted: Deletion) -> Applied:
    """Note a deletion, and delete its rows in all data sets of a folder; nothing happens if there is no folder."""
    if not directory.is_dir():
        return Applied()
    with locked(directory):
        _note(directory / NOTES, deleted)
        return _apply(directory)


def apply_notes(directory: Path, notes: Path | None = None) -> Applied:
    """Delete the rows of all noted deletions in all data sets of a folder.

    Args:
        notes: a file of deletions that was brought from elsewhere; None for the folder's own.

    Raises:
        NotesError: the file cannot be read.
    """
    with locked(directory):
        for each in () if notes is None else read_notes(notes):
            _note(directory / NOTES, each)
        return _apply(directory)


def read_notes(path: Path) -> list[Deletion]:
    """The deletions in a file; none if there is no file.

    Raises:
        NotesError: a line is none.
    """
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            found.append(Deletion(fields["kind"], fields["hash"], float(fields["at"])))
        except (ValueError, KeyError, TypeError) as error:
            raise NotesError(
                f"{path}, line {number}: expected a deletion as slipstream writes it, with kind, hash and at; found "
                f"{line[:80]!r}"
            ) from error
    return found


def remove(path: Path, deleted: Sequence[Deletion]) -> int:
    """Delete the rows of these deletions in one data set; the folder's lock is held. Returns how many."""
    if not deleted:
        return 0
    by_name = {(each.kind, each.hash): each for each in sorted(deleted, key=lambda each: each.at)}  # the latest of each

    def kept(provenance: Mapping[str, Any]) -> bool:
        return not any(by_name[name].means(provenance) for name in _named(provenance) if name in by_name)

    if all(kept(each) for split in folder.SPLITS for each in folder.read_provenance(path, split)):
        return 0  # most deletions are of other data sets: nothing is written anew for them
    return folder.remove_rows(path, kept)


def _named(provenance: Mapping[str, Any]) -> list[tuple[Kind, str]]:
    """The session and the tasks of a row, by their hashes."""
    fields: list[tuple[Kind, str]] = [
        ("session_id", "session_hash"), ("task_id", "task_hash"), ("task_id", "said_in_hash"),
    ]  # fmt: skip
    return [(kind, provenance[name]) for kind, name in fields if name in provenance]


def _apply(directory: Path) -> Applied:
    """Apply all notes: an earlier deletion may have met a data set that was being replaced, by an export that died."""
    deleted = read_notes(directory / NOTES)
    applied = Applied()
    for path in folder.list_folders(directory):
        try:
            if rows := remove(path, deleted):
                applied.rows[path.name] = rows
        except folder.DatasetExists:
            applied.waiting.append(path.name)
        except (SlipstreamError, OSError, ValueError) as error:  # one that cannot be read keeps no deletion from others
            applied.failed[path.name] = str(error)
    return applied


def _note(path: Path, deleted: Deletion) -> None:
    line = json.dumps({"kind": deleted.kind, "hash": deleted.hash, "at": deleted.at})
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
        file.flush()
        os.fsync(file.fileno())
