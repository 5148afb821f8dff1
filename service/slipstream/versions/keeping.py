"""Kept versions: a folder of hard links for each, so that the Trainer may delete its own.

    keep/
      8/kept.json        the files, with size and time of change
      8/actor/...        the weights

A folder has its final name only when it is whole. Files are added to it (an export that came later), never changed.
Who keeps or releases holds the folder of them all (`files.held`), until the store says the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from slipstream.trinity.checkpoint_files import replace_text, sync, sync_tree
from slipstream.versions import checkpoints
from slipstream.versions.checkpoints import Checkpoint, FileState
from slipstream.versions.files import NotPlaced, delete, place, sweep

_MANIFEST = "kept.json"


class NotKept(NotPlaced):
    """A version cannot be kept, or is not; the message says why."""


def keep(job: Path | None, folder: Path, version: int, *, copy: bool, made_at: float | None = None) -> Path:
    """Keep the weights of a version, and return the folder that has them. A second time it changes nothing, except that
    files which are whole only now are added.

    Args:
        job: the Trainer's directory; None where there is none.
        made_at: the time of its checkpoint; None where it is not known.

    Raises:
        NotKept: the weights are gone, not whole yet, of another training, or cannot be linked; nothing was changed.
    """
    sweep(folder)
    kept = folder / str(version)
    if (kept / _MANIFEST).exists():
        found = None if job is None else checkpoints.look(job, version)
        before = files_of(kept)
        if found is not None and _same_training(before, found.files):
            _add(found.path, kept, {**before, **found.files}, copy=copy)
        return kept
    found = _to_keep(job, version, made_at)
    partial = folder / f".{version}.partial"
    try:
        place(found.path, partial, found.files, copy=copy)
        _write_manifest(partial, found.files)
        sync_tree(partial)
        again = checkpoints.look(found.path.parent, version)
        if again is None or again.files != found.files:  # a Trainer deletes or writes it at this moment
            raise NotKept(f"version {version}: the Trainer changed or deleted it meanwhile")
        partial.rename(kept)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    sync(folder)
    return kept


def check(job: Path | None, folder: Path, version: int, made_at: float | None) -> None:
    """Make sure that the weights of a version are kept, or could be now.

    Raises:
        NotKept: as `keep`, and `files_of` for a version that is kept.
    """
    if (folder / str(version) / _MANIFEST).exists():
        files_of(folder / str(version))
    else:
        _to_keep(job, version, made_at)


def release(folder: Path, version: int) -> None:
    """Delete the kept weights of a version, if they are there."""
    sweep(folder)
    delete(folder / str(version))


def there(folder: Path) -> list[int]:
    """The versions whose folders are there."""
    return [int(path.parent.name) for path in folder.glob(f"*/{_MANIFEST}") if path.parent.name.isdecimal()]


def files_of(kept: Path) -> dict[str, FileState]:
    """The files of a kept version, as they were when it was kept.

    Raises:
        NotKept: its folder is gone, or a file was written again since, as a Trainer does that trains the same step
            again in the same place.
    """
    try:
        listed = json.loads((kept / _MANIFEST).read_text(encoding="utf-8"))["files"]
        files = {str(name): FileState(**state) for name, state in listed.items()}
    except FileNotFoundError as error:
        raise NotKept(f"{kept}: no kept version is there") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotKept(f"{kept / _MANIFEST}: expected the list of files of a kept version ({error})") from error
    for name, state in files.items():
        try:
            status = (kept / name).stat()
        except FileNotFoundError as error:
            raise NotKept(f"{kept / name}: the file is gone") from error
        if (status.st_size, status.st_mtime_ns) != (state.bytes, state.changed_ns):
            raise NotKept(
                f"{kept / name}: the file was written again since it was kept; serving.copy_files: true keeps copies"
            )
    return files


def _to_keep(job: Path | None, version: int, made_at: float | None) -> Checkpoint:
    found = None if job is None else checkpoints.look(job, version)
    if found is None:
        raise NotKept(_absence(job, version))
    if made_at not in (None, found.made_at):
        raise NotKept(f"version {version}: its weights are gone; {found.path} is another training of the same number")
    return found


def _add(source: Path, kept: Path, files: Mapping[str, FileState], *, copy: bool) -> None:
    """Add files that were not whole before; the list names them only once they are there."""
    missing = [name for name in files if not (kept / name).exists()]
    if missing:
        place(source, kept, missing, copy=copy)
        sync_tree(kept)
    if missing or set(files) != set(files_of(kept)):
        _write_manifest(kept, files)


def _same_training(before: Mapping[str, FileState], found: Mapping[str, FileState]) -> bool:
    return all(found.get(name, state) == state for name, state in before.items())


def _write_manifest(folder: Path, files: Mapping[str, FileState]) -> None:
    text = json.dumps({"files": {name: asdict(state) for name, state in files.items()}}, indent=1)
    replace_text(folder / _MANIFEST, text)


def _absence(job: Path | None, version: int) -> str:
    if job is None:
        return f"version {version}: expected serving.checkpoints, the Trainer's directory, to take it from; found null"
    steps = checkpoints.published(job)
    there = f"published there: {', '.join(map(str, steps)) or 'none'}"
    if version in steps:
        return f"version {version}: {job} has no whole weights of it; {there}"
    return (
        f"version {version}: not in {job}. The Trainer deleted it (trainer.max_checkpoints_to_keep), moved it aside, "
        f"or has not published it; {there}"
    )
