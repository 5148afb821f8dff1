"""Checkpoint files of a job, as Trinity-RFT and the embedded engine lay them out: names, markers, durable writes.

job_dir/
  latest_state_dict_iteration.txt      the version that the Explorer follows
  latest_checkpointed_iteration.txt    the last step saved with its training state
  trainer_meta.json                    the last step, as Trinity writes it
  global_step_N/actor/                 weights: model.safetensors, or huggingface/
"""

from __future__ import annotations

import os
import re
from pathlib import Path

VERSION_MARKER = "latest_state_dict_iteration.txt"
RESUME_MARKER = "latest_checkpointed_iteration.txt"
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
