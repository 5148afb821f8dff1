"""The checkpoint directory that Explorer and Trainer share, in Trinity-RFT's layout.

    job_dir/
      latest_state_dict_iteration.txt      the version that the Explorer follows
      latest_checkpointed_iteration.txt    the last step saved with its training state
      trainer_meta.json                    the last step, as Trinity writes it
      global_step_N/
        .full_checkpoint                   present when the training state (float32 weights, optimizer) was saved
        actor/huggingface/                 an ordinary Hugging Face model directory
        actor/training_state.pt            with .full_checkpoint only
        trained_on.json                    the version before, the experiences that this one has and that one has
                                           not, metrics of the last step, and the version from which on
                                           answers are trained on (`sampled_since`)

The weights are written once: Trinity loads `actor/huggingface/` where `actor/model.safetensors` is absent.
A step exists from the moment the first marker names it. Everything before that moment may be cut off at any
instruction and is overwritten by the next attempt.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from slipstream.errors import SlipstreamError
from slipstream.trinity.checkpoint_files import (
    FULL_FLAG,
    RESUME_MARKER,
    TRAINED_ON,
    VERSION_MARKER,
    json_object,
    let_all_read,
    put_in_place,
    step_directory,
    steps,
    sync_tree,
)

_STATE = "training_state.pt"


class CheckpointError(SlipstreamError):
    """A checkpoint is missing or damaged; the message names the path."""


def latest_version(job_dir: Path) -> int | None:
    """The version that the Explorer should serve, or None while nothing was published.

    Raises:
        CheckpointError: the marker holds no step number.
    """
    return _read_marker(job_dir / VERSION_MARKER)


def weights_path(job_dir: Path, version: int) -> Path:
    """The Hugging Face model directory of a published version.

    Raises:
        CheckpointError: there are no weights of that version (never written, or pruned since).
    """
    path = step_directory(job_dir, version) / "actor" / "huggingface"
    if not any(path.glob("*.safetensors")):
        raise CheckpointError(f"{path}: no weights of version {version}")
    return path


def load_weights(job_dir: Path, version: int) -> dict[str, torch.Tensor]:
    """All tensors of a version by name, on the CPU. Tied weights appear under one of their names only.

    Raises:
        CheckpointError: there are no weights of that version, or they cannot be read.
    """
    return dict(read_weights(weights_path(job_dir, version)))


def read_weights(directory: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model directory, one after the other, on the CPU.

    Raises:
        CheckpointError: a file cannot be read.
    """
    for shard in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(shard, framework="pt") as file:
                yield from ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118 - it is no mapping
        except Exception as error:
            raise CheckpointError(f"{shard}: {error}") from error


def load_training_state(job_dir: Path, version: int) -> dict[str, Any] | None:
    """The training state saved with a version, or None when that version was saved without it."""
    path = training_state_path(job_dir, version)
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def training_state_path(job_dir: Path, version: int) -> Path:
    """Return the file of a version's training state, which only full checkpoints have."""
    return step_directory(job_dir, version) / "actor" / _STATE


def trained_on(job_dir: Path, version: int) -> Mapping[str, Any]:
    """Return what a version says that it was trained on; empty where it says nothing."""
    return json_object(step_directory(job_dir, version) / TRAINED_ON)


def publish(
    job_dir: Path,
    version: int,
    save: Callable[[Path], None],
    *,
    training_state: Mapping[str, Any] | None = None,
    trained_on: Mapping[str, Any] | None = None,
) -> None:
    """Write a version and let the Explorer see it, or leave everything as it was.

    Args:
        job_dir: the shared directory; made when missing.
        version: the training step, above every published one.
        save: writes a Hugging Face model directory (config, weights, tokenizer) to the path it is given.
        training_state: state dicts to go on from exactly; makes this a full checkpoint.
        trained_on: what `trained_on.json` says; JSON values.

    Raises:
        CheckpointError: `version` is not above the published one.
    """
    published = latest_version(job_dir)
    if published is not None and version <= published:
        raise CheckpointError(f"{job_dir}: version {version} is not above the published {published}")
    job_dir.mkdir(parents=True, exist_ok=True)
    partial = job_dir / f".global_step_{version}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    actor = partial / "actor"
    actor.mkdir(parents=True)
    save(actor / "huggingface")
    let_all_read(actor / "huggingface")
    (partial / TRAINED_ON).write_text(json.dumps(trained_on or {}), encoding="utf-8")
    if training_state is not None:
        torch.save(dict(training_state), actor / _STATE)
        (partial / FULL_FLAG).touch()
    sync_tree(partial)

    put_in_place(job_dir, partial, version, resumable=training_state is not None)


def prune(job_dir: Path, keep: int) -> list[int]:
    """Delete the oldest steps until `keep` are left; 0 keeps all. A step that a marker names is never deleted.

    Returns:
        The versions that were deleted, oldest first.
    """
    named = {_read_marker(job_dir / VERSION_MARKER), _read_marker(job_dir / RESUME_MARKER)}
    there = sorted(steps(job_dir))
    excess = there[: max(len(there) - keep, 0)] if keep > 0 else []
    doomed = [step for step in excess if step not in named]
    for step in doomed:
        shutil.rmtree(step_directory(job_dir, step), ignore_errors=True)
    return doomed


def _read_marker(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    if not text.isdecimal():
        raise CheckpointError(f"{path}: expected a step number, found {text[:40]!r}")
    return int(text)
