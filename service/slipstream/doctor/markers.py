"""The job's directory as Explorer and Trainer leave it: what its marker files name, and what is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from slipstream.trinity.checkpoint_files import FULL_FLAG


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker file.

    Attributes:
        step: what it names; None where it holds no number.
        there: whether the step's directory exists.
        full: whether that holds a checkpoint to resume from.
        changed_at: Unix seconds, by the clock of the filesystem.
    """

    path: Path
    step: int | None
    there: bool
    full: bool
    changed_at: float


def read_marker(job_dir: Path, name: str) -> Marker | None:
    """The marker, or None where there is none (or none that can be read)."""
    path = job_dir / name
    try:
        text, changed_at = path.read_text(encoding="utf-8", errors="replace").strip(), path.stat().st_mtime
    except OSError:
        return None
    step = int(text) if text.isascii() and text.isdecimal() else None
    directory = job_dir / f"global_step_{step}"
    return Marker(path, step, os.path.isdir(directory), os.path.exists(directory / FULL_FLAG), changed_at)
