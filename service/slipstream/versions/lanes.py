"""A lane's directory: a job that only Slipstream writes, and that an Explorer follows as it follows a Trainer's.

An Explorer takes higher numbers only, so a version is put there as the next higher `global_step_M`, also to go back.
The weights are hard links, and the marker is written last: before it, the Explorer serves what it served.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from slipstream.trinity.checkpoint_files import (
    META,
    RESUME_MARKER,
    VERSION_MARKER,
    marked,
    replace_text,
    step_directory,
    steps,
    sync,
    sync_tree,
)
from slipstream.versions import checkpoints, keeping
from slipstream.versions.files import NotPlaced, delete, locked, place, sweep

_LABEL = "slipstream.json"
"""In each step: which version it is."""

_STEPS = 3
"""Steps that stay: an Explorer may still be loading the one before the newest."""


@dataclass(frozen=True, slots=True)
class LaneStep:
    """The step that a lane's Explorer is to load.

    Attributes:
        step: the number M that its /metrics says once it has.
        version: the version that it is; None where something else wrote it, or the number is another training's by now.
        replaced: the number that is another training's by now; None where it is not.
    """

    step: int
    version: int | None
    replaced: int | None = None


def newest(lane: Path) -> LaneStep | None:
    """The step that the lane's marker names; None where nothing was put there yet."""
    step = marked(lane, VERSION_MARKER)
    return None if step is None else LaneStep(step, _version_of(step_directory(lane, step)))


async def known(lane: Path, wanted: Callable[[int], Awaitable[float | None]]) -> LaneStep | None:
    """The newest step, which is of no version if its weights are another training's than those known by its number.

    Args:
        wanted: tells when the weights of a version were made, as the store knows it; None where it does not.
    """
    there = await asyncio.to_thread(newest, lane)
    if there is None or there.version is None:
        return there
    time = await wanted(there.version)
    if time is None or time == await asyncio.to_thread(made_at, lane, there.step):
        return there
    return LaneStep(there.step, None, replaced=there.version)


def made_at(lane: Path, step: int) -> float | None:
    """The time at which the weights of a lane's step were written. It tells two trainings that reached one number."""
    return checkpoints.made_at(step_directory(lane, step))


def put(lane: Path, kept: Path, version: int, *, copy: bool, anew: bool = False) -> int:
    """Have a lane load a kept version, and return its number there. The lane is made where it is missing.

    A version that is the lane's newest already keeps its number, so that after a crash this may be called again.
    Weights of another training under the version's number are another version.

    Args:
        kept: the folder that has the version, of `keeping.keep`.
        anew: give it a higher number even so: for an Explorer that could not load the one before.

    Raises:
        NotPlaced: the folder has no whole version, a Trainer writes the lane, or the files cannot be linked. The lane
            loads what it loaded before.
    """
    files = keeping.files_of(kept)
    with locked(lane):
        _refuse_trainers(lane)
        sweep(lane)
        current = newest(lane)
        if current is not None and current.version == version and not anew:
            loaded = made_at(lane, current.step)
            if loaded == checkpoints.made_at(kept):
                return current.step
        step = max([0, *steps(lane), *([] if current is None else [current.step])]) + 1
        partial = lane / f".global_step_{step}.partial"
        try:
            place(kept, partial, files, copy=copy)
            (partial / _LABEL).write_text(json.dumps({"version": version}), encoding="utf-8")
            sync_tree(partial)
            partial.rename(step_directory(lane, step))
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync(lane)
        replace_text(lane / META, json.dumps({"latest_iteration": step}))
        replace_text(lane / VERSION_MARKER, str(step))
        for old in sorted(steps(lane))[:-_STEPS]:
            delete(step_directory(lane, old))
        return step


def _version_of(step: Path) -> int | None:
    try:
        version = json.loads((step / _LABEL).read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return version if isinstance(version, int) else None


def _refuse_trainers(lane: Path) -> None:
    """Two writers would take each other's numbers, and the users would get what training makes, untested."""
    for name in (RESUME_MARKER, ".trainer.lock"):
        if (lane / name).exists():
            raise NotPlaced(
                f"{lane}: expected a directory that only Slipstream writes; a Trainer has left {name} in it"
            )
