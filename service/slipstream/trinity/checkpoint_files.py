"""Checkpoint files of a job, as Trinity-RFT and the embedded engine lay them out: names, markers, durable writes.

job_dir/
  latest_state_dict_iteration.txt      the version that the Explorer follows
  latest_checkpointed_iteration.txt    the last step saved with its training state
  trainer_meta.json                    the last step, as Trinity writes it
  global_step_N/actor/                 weights: model.safetensors, or huggingface/
  global_step_N/.full_checkpoint       it has the training state too
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

VERSION_MARKER = "latest_state_dict_iteration.txt"
RESUME_MARKER = "latest_checkpointed_iteration.txt"
FULL_FLAG = ".full_checkpoint"
"""In a step that was saved with its training state."""
META = "trainer_meta.json"
TRAINED_ON = "trained_on.json"

_STEP = re.compile(r"global_step_(\d+)", re.ASCII)


def step_directory(job_dir: Path, step: int) -> Path:
    """The folder of a step, whether it is there or not."""
    return job_dir / f"global_step_{step}"


def steps(job_dir: Path) -> list[int]:
    """The steps whose folders are there, in no order."""
    names = (_STEP.fullmatch(entry.name) for entry in job_dir.glob("global_step_*"))
    return [int(name[1]) for name in names if name]


def is_full(step: Path) -> bool:
    """Return whether a step was saved with its training state. Trinity-RFT says so before it has written that."""
    return (step / FULL_FLAG).exists()


def marked(job_dir: Path, marker: str) -> int | None:
    """The step that a marker names; None without the marker, or while it holds no number."""
    try:
        text = (job_dir / marker).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


def replace_text(path: Path, text: str) -> None:
    """Replace a file as one atomic, durable act: a reader sees the old text or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def put_in_place(job_dir: Path, folder: Path, version: int, *, resumable: bool) -> None:
    """Make a whole folder the job's version: rename it, then let the Trainer see it, and the Explorer last.

    It may be cut off at any instruction. If the folder was renamed before that, the second call writes what is missing.

    Args:
        folder: the step with all of its files, on the disk, in the job's file system.
        version: above every published one.
        resumable: the Trainer can go on from it: it has a training state.
    """
    final = step_directory(job_dir, version)
    if folder.exists():
        shutil.rmtree(final, ignore_errors=True)  # of a Trainer that died between the rename and the marker
        folder.rename(final)
        sync(job_dir)
    replace_text(job_dir / META, json.dumps({**json_object(job_dir / META), "latest_iteration": version}))
    if resumable:
        replace_text(job_dir / RESUME_MARKER, str(version))
    replace_text(job_dir / VERSION_MARKER, str(version))


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if it is not there, or no object."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def let_all_read(folder: Path) -> None:
    """Let every user read a model directory: safetensors writes for its own user alone, and Explorer and Trainer may be
    two. Where a model has several chat templates, there is a folder in it."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def sync_tree(root: Path) -> None:
    """Have the disk hold all files and folders below `root`."""
    for folder, _, files in os.walk(root):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))


def sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
