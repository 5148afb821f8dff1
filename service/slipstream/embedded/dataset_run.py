"""A training run on a data set that may be killed at any moment: its folder in the job's directory.

job_dir/dataset_run/
  run.json      what is trained on, from which version to which; there from the run's first moment to its last
  rows/         the rows as token ids, made anew at each start
  steps/        checkpoints of the Hugging Face Trainer: weights, optimizer, place in the data
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from slipstream.trinity.checkpoint_files import sync, sync_tree
from slipstream.trinity.noted_run import NotedRun

_WHOLE = ".whole"


@dataclass(frozen=True, kw_only=True)
class EmbeddedRun(NotedRun):
    """A run of the embedded engine on a data set."""

    FOLDER: ClassVar[str] = "dataset_run"

    @property
    def rows(self) -> Path:
        """The folder of the rows as token ids."""
        return self.folder / "rows"

    @property
    def steps_folder(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "steps"

    def newest_checkpoint(self) -> Path | None:
        """Return the newest checkpoint that is whole."""
        numbered = {int(path.name.rpartition("-")[2]): path for path in self.steps_folder.glob("checkpoint-*")}
        whole = [step for step, path in numbered.items() if (path / _WHOLE).exists()]
        return numbered[max(whole)] if whole else None


def mark_whole(checkpoint: Path) -> None:
    """Note that a checkpoint is on the disk with all of its files."""
    sync_tree(checkpoint)
    (checkpoint / _WHOLE).touch()
    sync(checkpoint)
