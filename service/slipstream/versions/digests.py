"""Digests of weights, by which it is seen that training has changed nothing.

Each version is read once, from its first byte to its last: a step in bfloat16 changes few of the weights, so that a
sample would miss it. A piece of a file is in memory at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import structlog

from slipstream.settings.serving import Serving
from slipstream.store import version_weights
from slipstream.store.database import Database
from slipstream.store.version_weights import Undigested
from slipstream.versions import checkpoints, keeping
from slipstream.versions.checkpoints import FileState
from slipstream.versions.files import NotPlaced

_log = structlog.get_logger(__name__)

TICK = 10.0
"""Seconds between two looks for a version without a digest."""

_PIECE = 1024**2
"""Bytes that are read at once."""

_KINDS = (
    re.compile(r"actor/model_world_size_\d+_rank_\d+\.pt"),
    re.compile(r"actor/[^/]+\.safetensors"),
    re.compile(r"actor/.+\.safetensors"),
    re.compile(r"actor/huggingface/.+\.bin"),
)
"""Kinds of weight files; the first kind that a version has is read. Trinity writes the state dict first and exports it
later, so that two versions are compared by the same kind whenever each of them is read."""


class _Stopped(Exception):
    """The process ends."""


class WeightDigests:
    """The stage that computes the digest of each new version, in a thread. Sidecars that see the same directory each
    compute it, and note the same."""

    def __init__(self, settings: Serving, database: Database) -> None:
        self._job = settings.checkpoints
        self._database = database
        self._unread: set[Undigested] = set()
        """Versions whose files are gone, or cannot be read."""

    async def step(self) -> bool:
        """Compute one digest. Returns whether there may be another to compute."""
        async with self._database.read() as session:
            due = await version_weights.undigested(session)
        self._unread &= set(due)
        waiting = [one for one in due if one not in self._unread]
        if not waiting:
            return False
        one = waiting[0]
        digest = await self._digest(one)
        if digest is None:
            self._unread.add(one)
        else:
            async with self._database.write() as session:
                await version_weights.note(session, one, digest)
            _log.info("weights_digested", version=one.version, digest=digest)
        return len(waiting) > 1

    async def _digest(self, one: Undigested) -> str | None:
        stop = threading.Event()
        try:
            return await asyncio.to_thread(_digest_of, self._job, one, stop.is_set)
        except (NotPlaced, OSError) as error:
            _log.warning("weights_not_digested", version=one.version, reason=str(error))
            return None
        finally:
            stop.set()  # the thread of a step that was cancelled ends with its piece


def digest_of(folder: Path, names: Iterable[str], stopped: Callable[[], bool] = lambda: False) -> str:
    """SHA-256 of the weight files among these, with their names and sizes, in hexadecimal.

    Args:
        names: of the version's files, below `folder`.
        stopped: asked with each piece; the work ends once it is true.

    Raises:
        OSError: a file cannot be read.
    """
    listed = sorted(names)
    kinds = ([name for name in listed if kind.fullmatch(name)] for kind in _KINDS)
    digest = hashlib.sha256()
    for name in next((some for some in kinds if some), []):
        path = folder / name
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        with path.open("rb", buffering=0) as file:
            while piece := file.read(_PIECE):
                if stopped():
                    raise _Stopped
                digest.update(piece)
    return digest.hexdigest()


def _digest_of(job: Path | None, one: Undigested, stopped: Callable[[], bool]) -> str | None:
    """The digest of a version; None unless its files are there, and are the same before and after."""
    before = _files(job, one)
    if before is None:
        return None
    folder, files = before
    digest = digest_of(folder, files, stopped)
    return digest if _files(job, one) == before else None


def _files(job: Path | None, one: Undigested) -> tuple[Path, dict[str, FileState]] | None:
    if one.kept is not None:
        return Path(one.kept), keeping.files_of(Path(one.kept))
    found = None if job is None else checkpoints.look(job, one.version)
    return None if found is None or found.made_at != one.made_at else (found.path, dict(found.files))
