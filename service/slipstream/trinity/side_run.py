"""A run of Trinity-RFT on a data set that may be killed at any moment: its folder in the directory of the policy's job.

    job_dir/trinity_run/
      run.json        what is trained on, from which version to which; there from the run's first moment to its last
      rows/           the rows as Trinity reads them, made anew at each start
      cache/          where Hugging Face's reader copies them to
      trinity.log     what Trinity and its Ray wrote
      job/dataset/    the side job: its checkpoints, its own logs, its metrics

The folder is in the policy's job because a folder can only be moved at once within a file system.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from slipstream.trinity.checkpoint_files import (
    META,
    RESUME_MARKER,
    VERSION_MARKER,
    is_full,
    marked,
    replace_text,
    step_directory,
    steps,
)
from slipstream.trinity.noted_run import NotedRun
from slipstream.trinity.side_job import NAME, PROJECT

_STEP_FAILED = "Error in Trainer:"
"""Trinity's words in its log for a training step that raised: it then saves the step as if it had been trained, and
exits with 0."""


@dataclass(frozen=True, kw_only=True)
class SideRun(NotedRun):
    """A run of Trinity-RFT, as `run.json` has it.

    Attributes:
        rows: of a step.
        newest: version of the policy when it began, which may be far below that of the run; None in one of an earlier
            release, whose version is the next one.
    """

    FOLDER: ClassVar[str] = "trinity_run"

    rows: int
    newest: int | None = None

    @property
    def newest_before(self) -> int:
        """The policy's newest version when the run began."""
        return super().newest_before if self.newest is None else self.newest

    @property
    def cache(self) -> Path:
        """The folder that Hugging Face's reader copies the rows to."""
        return self.folder / "cache"

    @property
    def log(self) -> Path:
        """The file that Trinity and its Ray write to."""
        return self.folder / "trinity.log"

    @property
    def job(self) -> Path:
        """The directory of the side job."""
        return self.folder / PROJECT / NAME

    @property
    def board(self) -> Path:
        """The folder of its metrics for TensorBoard."""
        return self.job / "monitor" / "tensorboard"

    @property
    def trained(self) -> Path:
        """The side job's last step."""
        return step_directory(self.job, self.steps)

    def done(self) -> int:
        """Return the steps that the side job can go on from; a step that failed is not one of them."""
        return marked(self.job, RESUME_MARKER) or 0

    def prepare(self) -> None:
        """Have the side job go on after the last step that is whole, with the row that comes then.

        Trinity notes the row in another file than the step, a moment later, so a kill between the two would have rows
        trained on twice.
        """
        self.job.mkdir(parents=True, exist_ok=True)
        step = self.done()
        if step:
            state = {"latest_iteration": step, "sample_strategy_state": {"current_index": step * self.rows}}
            replace_text(self.job / META, json.dumps(state))

    def failures(self) -> int:
        """Count the training steps that raised, by what Trinity wrote."""
        logs = [self.log, *self.job.glob("log/**/*.log")]
        return sum(_lines_with(path, _STEP_FAILED.encode()) for path in logs if path.exists())

    def forget_last(self) -> None:
        """Have the side job go on from the full step before its last one, or from the start."""
        last = self.done()
        before = [step for step in steps(self.job) if step < last and is_full(step_directory(self.job, step))]
        if before:
            for marker in (RESUME_MARKER, VERSION_MARKER):
                replace_text(self.job / marker, str(max(before)))
            shutil.rmtree(step_directory(self.job, last), ignore_errors=True)
        else:
            shutil.rmtree(self.job, ignore_errors=True)

    def last_lines(self, count: int = 15) -> str:
        """Return the end of what Trinity wrote."""
        with self.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 64 * 1024))
            lines = file.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-count:])


def model_directory(step: Path) -> Path | None:
    """Return the Hugging Face directory of a step; None if its weights were not exported."""
    path = step / "actor" / "huggingface"
    return path if any(path.glob("*.safetensors")) else None


def _lines_with(path: Path, text: bytes) -> int:
    with path.open("rb") as file:
        return sum(text in line for line in file)
