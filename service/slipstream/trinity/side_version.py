"""The move of a side job's last step into the policy's job, where it is the next version.

    1. the folder gets `trained_on.json` and an optimizer that starts afresh, all of it on the disk
    2. it is renamed to `global_step_N` of the policy's job: nothing names it yet
    3. the markers: `trainer_meta.json` and `latest_checkpointed_iteration.txt`, from which the Trainer resumes; then
       `latest_state_dict_iteration.txt`, which the Explorer follows

A kill between any two of these is found by the run's id in `trained_on.json`, and the rest is done.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.trinity import fresh_optimizer
from slipstream.trinity.checkpoint_files import TRAINED_ON, let_all_read, put_in_place, replace_text, sync_tree
from slipstream.trinity.noted_run import RunError
from slipstream.trinity.ray import find_program
from slipstream.trinity.side_run import SideRun, model_directory

_WITHIN = 1800.0
"""Seconds for writing the optimizers anew: they are read in part only, so a slow disk is what takes time."""


def publish(run: SideRun, job_dir: Path, said: Mapping[str, Any], optimizer: Mapping[str, Any]) -> None:
    """Make the side job's last step the policy's next version.

    Args:
        job_dir: of the policy, whose Trainer is stopped.
        said: more of `trained_on.json`.
        optimizer: `algorithm.optimizer` of the policy's Trainer.

    Raises:
        RunError: the step is not whole, or its optimizer cannot be reset.
    """
    trained = run.trained
    if run.done() != run.steps or model_directory(trained) is None:
        raise RunError(f"{trained}: expected a full checkpoint with its Hugging Face directory, found none")
    _start_optimizer_afresh(trained / "actor", optimizer)
    replace_text(trained / TRAINED_ON, json.dumps(run.trained_on(engine="trinity", **said)))
    let_all_read(trained / "actor" / "huggingface")
    sync_tree(trained)
    put_in_place(job_dir, trained, run.version, resumable=True)


def finish(run: SideRun, job_dir: Path) -> None:
    """Write the markers of a version that was moved into the policy's job already."""
    put_in_place(job_dir, run.trained, run.version, resumable=True)


def optimizer_settings(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the policy's Trainer begins with, from its `algorithm.optimizer`.

    The rate of the first step is that of the schedule: none, where it warms up.
    """
    warms_up = optimizer.get("lr_warmup_steps", -1) > 0 or (
        optimizer.get("lr_warmup_steps", -1) < 0 and optimizer.get("lr_warmup_steps_ratio", 0.0) > 0
    )
    rate = float(optimizer.get("lr", 1e-6))
    return {
        "lr": 0.0 if warms_up else rate,
        "initial_lr": rate,
        "weight_decay": float(optimizer.get("weight_decay", 0.01)),
        "betas": list(optimizer.get("betas", (0.9, 0.999))),
    }


def _start_optimizer_afresh(actor: Path, optimizer: Mapping[str, Any]) -> None:
    beside = Path(find_program("trinity")).with_name("python")
    python = str(beside) if beside.exists() else sys.executable
    command = [python, fresh_optimizer.__file__, str(actor), json.dumps(optimizer_settings(optimizer))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN, check=False)  # noqa: S603 - Trinity's own Python
    if done.returncode != 0:
        raise RunError(f"{actor}: its optimizer cannot be reset:\n{done.stderr[-2000:]}")
