"""A training run on a data set that may be killed at any moment: its folder in the job's directory.

    job_dir/dataset_run/
      run.json      what is trained on, from which version to which; there from the run's first moment to its last
      rows/         the rows as token ids, made anew at each start
      steps/        checkpoints of the Hugging Face Trainer: weights, optimizer, place in the data

The version counts from the moment that its marker names it. `run.json` and `trained_on.json` share the run's id, so a
run that died after that moment is known to be done, and is never published a second time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from slipstream.embedded import checkpoints
from slipstream.errors import SlipstreamError
from slipstream.trinity.checkpoint_files import TRAINED_ON, json_object, replace_text, step_directory, sync, sync_tree

_FOLDER = "dataset_run"
_RUN = "run.json"
_WHOLE = ".whole"


class RunError(SlipstreamError):
    """A run on a data set cannot start or go on; nothing was changed."""


@dataclass(frozen=True)
class DatasetRun:
    """A run, as `run.json` has it.

    Attributes:
        id: of this run.
        dataset: name of the data set.
        digest: of the token ids, their order and all settings that the weights depend on.
        parent: version that training started from; 0 for the base model.
        version: that it makes.
        steps: in all.
    """

    id: str
    dataset: str
    digest: str
    parent: int
    version: int
    steps: int
    folder: Path = field(compare=False)

    @classmethod
    def load(cls, job_dir: Path) -> Self | None:
        """Return the run that a job has begun and not ended.

        Raises:
            RunError: `run.json` is damaged.
        """
        path = folder_of(job_dir) / _RUN
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")), folder=path.parent)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path}: expected the description of a run: {error}; delete {path.parent}") from error

    def save(self) -> None:
        """Begin the run: from here on it is half done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fields = {name: value for name, value in asdict(self).items() if name != "folder"}
        replace_text(self.folder / _RUN, json.dumps(fields))
        sync(self.folder.parent)

    def is_published(self, job_dir: Path) -> bool:
        """Return whether its version is there already."""
        if (checkpoints.latest_version(job_dir) or 0) < self.version:
            return False
        return trained_on(job_dir, self.version).get("run") == self.id

    def end(self) -> None:
        """Delete the run's folder, `run.json` last."""
        for path in (self.rows, self.steps_folder):
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

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


def folder_of(job_dir: Path) -> Path:
    """Return the folder of a job's run on a data set, whether it is there or not."""
    return job_dir / _FOLDER


def mark_whole(checkpoint: Path) -> None:
    """Note that a checkpoint is on the disk with all of its files."""
    sync_tree(checkpoint)
    (checkpoint / _WHOLE).touch()
    sync(checkpoint)


def trained_on(job_dir: Path, version: int) -> Mapping[str, Any]:
    """Return what a version says that it was trained on; empty where it says nothing."""
    return json_object(step_directory(job_dir, version) / TRAINED_ON)
