"""Checkpoints in a Trainer's directory: which ones are whole, and which of their files make up the weights.

A step is whole from the moment a marker names it or a later one. Trinity-RFT has two moments: its state dict is whole
with the first marker, its export for Hugging Face with the second, so that of a step between the two only the state
dict is taken.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.store.versions import Found
from slipstream.trinity.checkpoint_files import (
    RESUME_MARKER,
    TRAINED_ON,
    VERSION_MARKER,
    json_object,
    marked,
    step_directory,
    steps,
)

_STATE = re.compile(r"(optim_|extra_state_).*|training_state\.pt")
"""Files that only a Trainer needs, which are twice as large as the weights."""

_WEIGHTS = re.compile(r"actor/(.+\.safetensors|huggingface/.+\.bin|model_world_size_\d+_rank_\d+\.pt)")
_EXPORTED = re.compile(r"actor/(huggingface/.+(\.safetensors|\.bin|\.index\.json)|.+\.pt)")


@dataclass(frozen=True, slots=True)
class FileState:
    """Size and time of change of a file; another time is another content."""

    bytes: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint, without what only a Trainer needs.

    Attributes:
        files: by their paths below `path`, with slashes.
        made_at: when its weights were written, Unix seconds by the clock of the file system.
    """

    version: int
    path: Path
    files: Mapping[str, FileState]
    made_at: float


def published(job: Path) -> list[int]:
    """The steps that a marker has made known, in ascending order; none before the first."""
    newest = marked(job, VERSION_MARKER)
    return [] if newest is None else sorted(step for step in steps(job) if step <= newest)


def look(job: Path, version: int) -> Checkpoint | None:
    """The checkpoint of a version; None where it is not published, or its weights are not there, or not whole."""
    if version > (marked(job, VERSION_MARKER) or 0):
        return None
    path = step_directory(job, version)
    files = _files(path)
    if TRAINED_ON not in files and version > (marked(job, RESUME_MARKER) or 0):
        files = {name: state for name, state in files.items() if not _EXPORTED.fullmatch(name)}
    at = _made_at(files)
    if at is None or not _has_all_shards(path, files):
        return None
    return Checkpoint(version, path, files, at)


def made_at(folder: Path) -> float | None:
    """The time at which the weights below the folder of a step or of a kept version were written, as
    `Checkpoint.made_at`; None where there are none. Another time is another training."""
    return _made_at(_files(folder))


def describe(checkpoint: Checkpoint, below: int | None) -> Found:
    """The checkpoint as the registry has it, with what the Trainer says about it.

    Args:
        below: the next lower version, which is its parent where the Trainer does not name one.
    """
    said = json_object(checkpoint.path / TRAINED_ON)
    parent, experiences, metrics = said.get("parent"), said.get("experiences"), said.get("metrics")
    return Found(
        version=checkpoint.version,
        checkpoint=str(checkpoint.path),
        made_at=checkpoint.made_at,
        parent=parent if _is_count(parent) else below,
        experiences=experiences if _is_count(experiences) else None,
        metrics=_numbers(metrics) if isinstance(metrics, dict) else None,
        dataset=_dataset(said.get("dataset")),
    )


def _dataset(said: Any) -> dict[str, Any] | None:
    """The data set that a version was trained on, as far as what is said of it is well formed."""
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        return None
    found: dict[str, Any] = {
        name: value for name in ("name", "digest", "kind") if isinstance(value := said.get(name), str)
    }
    if _is_count(said.get("rows")):
        found["rows"] = said["rows"]
    if isinstance(also := said.get("also"), list) and (names := [name for name in also if isinstance(name, str)]):
        found["also"] = names
    return found


def _made_at(files: Mapping[str, FileState]) -> float | None:
    weights = [name for name in files if _WEIGHTS.fullmatch(name)]
    oldest = min(weights, key=lambda name: (name.count("/"), name), default=None)
    return None if oldest is None else files[oldest].changed_ns / 1e9


def _files(step: Path) -> dict[str, FileState]:
    """Files of a step that are no training state, as far as they are there: a Trainer may be deleting it."""
    found = {}
    paths = [Path(folder, name) for folder, _, names in os.walk(step) for name in names]
    for path in sorted(paths):
        name = path.relative_to(step).as_posix()
        if path.name.startswith(".") or _STATE.fullmatch(path.name):
            continue
        if name != TRAINED_ON and not name.startswith("actor/"):
            continue
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            found[name] = FileState(status.st_size, status.st_mtime_ns)
    return found


def _has_all_shards(step: Path, files: Mapping[str, FileState]) -> bool:
    """Return whether each index of shards finds all of them."""
    for name in files:
        if name.endswith(".index.json"):
            folder = name.rpartition("/")[0]
            shards = json_object(step / name).get("weight_map")
            if not isinstance(shards, dict) or not {f"{folder}/{shard}" for shard in shards.values()} <= set(files):
                return False
    return True


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a mapping."""
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {str(name): value for name, value in numbers.items() if not isinstance(value, bool) and math.isfinite(value)}
