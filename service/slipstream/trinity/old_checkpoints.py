"""Full checkpoints that a job's Trainer no longer keeps (`trainer.max_checkpoints_to_keep`).

Trinity-RFT 0.6.0 notes in its process which full checkpoints it has saved, and deletes the oldest of those alone. What
was saved before a restart stays for ever, 14 bytes a parameter each, until the disk is full. So the program that
starts the Trainer deletes them, by this rule:

- a full checkpoint has `.full_checkpoint`, which Trinity writes first. It is whole if it is not above the step that
  `latest_checkpointed_iteration.txt` names: only those count and are deleted, the oldest first;
- what either marker names is never deleted, and nothing is while a marker is being written or there is none.

Versions that the sidecar keeps are hard links elsewhere (`slipstream.versions`), and stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import structlog

from slipstream.trinity.checkpoint_files import (
    RESUME_MARKER,
    VERSION_MARKER,
    is_full,
    marked,
    step_directory,
    steps,
)
from slipstream.trinity.job import job_directory

log = structlog.get_logger(__name__)

_DELETED = ".deleted"


class OldCheckpoints:
    """Old full checkpoints of a Trainer whose job is held.

    Args:
        document: the file of Trinity's service. Nothing is deleted for an Explorer, without
            `trainer.max_checkpoints_to_keep`, or if Trinity may write to another directory than the file names
            (`continue_from_checkpoint: false`, `stages`).
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        trainer = document.get("trainer") or {}
        keep = trainer.get("max_checkpoints_to_keep")
        elsewhere = document.get("continue_from_checkpoint") is False or document.get("stages")
        known = document.get("mode") == "train" and trainer.get("trainer_type") in (None, "verl")
        self._job = job_directory(document)
        self._keep = 0
        if known and not elsewhere and isinstance(keep, int) and not isinstance(keep, bool):
            self._keep = keep
        self._newest: int | None = None

    def delete(self) -> None:
        """Delete those that are too many, if a full checkpoint came since the last call.

        It never raises: no Trainer is to end because a file cannot be read or deleted.
        """
        if self._keep <= 0:
            return
        try:
            newest, served = marked(self._job, RESUME_MARKER), marked(self._job, VERSION_MARKER)
            if newest is None or served is None or newest == self._newest:
                return
            full = sorted(
                step for step in steps(self._job) if step <= newest and is_full(step_directory(self._job, step))
            )
        except OSError:  # a file system that is away for a moment
            return
        self._newest = newest
        doomed = [step for step in full[: -self._keep] if step not in (newest, served)]
        try:
            self._sweep()
            for step in doomed:
                # renamed first: what is left of it after a kill is not taken for a checkpoint
                step_directory(self._job, step).rename(self._job / f".global_step_{step}{_DELETED}")
            self._sweep()
        except OSError as error:
            log.warning("old full checkpoints cannot be deleted", error=str(error), steps=doomed, job=str(self._job))
            return
        if doomed:
            log.info("old full checkpoints deleted", steps=doomed, kept=self._keep, job=str(self._job))

    def _sweep(self) -> None:
        for left in self._job.glob(f".global_step_*{_DELETED}"):
            shutil.rmtree(left, ignore_errors=True)
