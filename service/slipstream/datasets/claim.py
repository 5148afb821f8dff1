"""The name of a data set, held while its folder is made, replaced or deleted.

A folder is made as `.NAME.partial` and renamed when it is whole. Where there is one of the name already, that one is
renamed to `.NAME.replaced` first: a process that dies between the two leaves both, and the next one that looks puts the
new one in place. A claim is a lock on the partial folder, which ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from slipstream.datasets.manifest import MANIFEST
from slipstream.errors import SlipstreamError
from slipstream.trinity.checkpoint_files import sync, sync_tree
from slipstream.versions.files import delete, locked


class DatasetError(SlipstreamError):
    """A data set cannot be made, read or changed; names it."""


class DatasetExists(DatasetError):
    """There is a data set of this name already, or another process makes one."""


class DatasetMissing(DatasetError):
    """There is no data set of this name."""


class Claim:
    """A name that is held. Made by `claimed`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.partial = _beside(path, "partial")
        self.published = False

    def publish(self, *, replace: bool) -> None:
        """Put the partial folder in place, on the disk, as one act.

        Raises:
            DatasetExists: there is one of the name, and `replace` is not set.
        """
        sync_tree(self.partial)
        replaced = _beside(self.path, "replaced")
        with locked(self.path.parent):
            if self.path.exists():
                if not replace:
                    raise _exists(self.path)
                self.path.rename(replaced)
            self.partial.rename(self.path)
            self.published = True
            sync(self.path.parent)
            shutil.rmtree(replaced, ignore_errors=True)


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[Claim]:
    """Hold a name; `.partial` of the claim is an empty folder, which is deleted at the end if it was not published.

    Raises:
        DatasetExists: another process holds it.
    """
    claim = Claim(path)
    with locked(path.parent):
        _settle(path)
        if not _abandoned(claim.partial):
            raise DatasetExists(f"{path.name}: another process is making or changing this data set")
        shutil.rmtree(claim.partial, ignore_errors=True)
        claim.partial.mkdir(mode=0o700)  # conversations: for this user alone, as the store
        descriptor = os.open(claim.partial, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield claim
    finally:
        if not claim.published:  # after that, a folder of this name would be another's
            shutil.rmtree(claim.partial, ignore_errors=True)
        os.close(descriptor)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open the folder of a data set, as a descriptor through which its files belong together: it may be replaced
    meanwhile.

    Raises:
        DatasetMissing: there is none.
    """
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        if path.parent.is_dir():
            with locked(path.parent):
                _settle(path)
        try:
            descriptor = _open(path)
        except (FileNotFoundError, NotADirectoryError):
            raise DatasetMissing(f"{path.name}: expected a data set in {path.parent}, found none") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a data set; no reader sees a part of it.

    Raises:
        DatasetExists: another process is making or changing it.
        DatasetMissing: there is none.
    """
    with claimed(path):
        if not path.is_dir():
            raise DatasetMissing(f"{path.name}: expected a data set in {path.parent}, found none")
        delete(path)


def names(directory: Path) -> list[str]:
    """Return the names of the data sets in a directory, in order; what died processes have left is put right."""
    if not directory.is_dir():
        return []
    left = {match[1] for match in map(_LEFT.fullmatch, os.listdir(directory)) if match}
    if left:
        with locked(directory):
            for name in left:
                _settle(directory / name)
                partial = _beside(directory / name, "partial")
                if _abandoned(partial):
                    shutil.rmtree(partial, ignore_errors=True)
    return sorted(path.parent.name for path in directory.glob(f"*/{MANIFEST}") if not path.parent.name.startswith("."))


_LEFT = re.compile(r"\.(.+)\.(?:partial|replaced|deleted)")


def _settle(path: Path) -> None:
    """End what a process that died has begun, while the directory is held."""
    replaced = _beside(path, "replaced")
    if replaced.exists() and not path.exists():
        partial = _beside(path, "partial")
        (partial if (partial / MANIFEST).exists() else replaced).rename(path)
        sync(path.parent)
    shutil.rmtree(replaced, ignore_errors=True)
    shutil.rmtree(_beside(path, "deleted"), ignore_errors=True)


def _abandoned(partial: Path) -> bool:
    """Look if no process holds this folder; it need not be there."""
    try:
        descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{ending}")


def _exists(path: Path) -> DatasetExists:
    return DatasetExists(f"{path.name}: expected a new name, found a data set of it in {path.parent}")
