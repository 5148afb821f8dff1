"""A run on a data set that may be killed at any moment, as `run.json` in the directory of the policy's job notes it.

    job_dir/FOLDER/run.json    what is trained on, from which version to which; there from the run's first moment to
                               its last

`run.json` and `trained_on.json` of the version share the run's id. So a run that died after its version was published
is known to be done, and is not published a second time.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from slipstream.errors import SlipstreamError
from slipstream.trinity.checkpoint_files import (
    TRAINED_ON,
    VERSION_MARKER,
    json_object,
    marked,
    replace_text,
    step_directory,
    sync,
)

_RUN = "run.json"


class RunError(SlipstreamError):
    """A run on a data set cannot start, go on or end; no version was published."""


@dataclass(frozen=True, kw_only=True)
class NotedRun:
    """A run, as `run.json` has it.

    Attributes:
        id: of this run.
        dataset: name of the data set.
        digest: of the rows, their order and all settings that the weights depend on.
        parent: version that training started from; 0 for the base model.
        version: that it makes.
        steps: in all.
        folder: of the run, in the directory of the policy's job.
        parent_at: when the weights of `parent` were written, as `written_at` returns it; None in a run of an earlier
            release too.
    """

    FOLDER: ClassVar[str]

    id: str
    dataset: str
    digest: str
    parent: int
    version: int
    steps: int
    folder: Path = field(compare=False)
    parent_at: int | None = None

    @property
    def newest_before(self) -> int:
        """The policy's newest version when the run began."""
        return self.version - 1

    @classmethod
    def folder_of(cls, job_dir: Path) -> Path:
        """Return the folder of a job's run, whether it is there or not."""
        return job_dir / cls.FOLDER

    @staticmethod
    def written_at(job_dir: Path, version: int) -> int | None:
        """Return when the weights of a job's version were written, in nanoseconds of the file system's clock; None if
        they are not there, and for the base model. Two versions that had one number, one after the other, differ in it.
        """
        files = (step_directory(job_dir, version) / "actor").rglob("*.safetensors")
        return max((file.stat().st_mtime_ns for file in files), default=None)

    @classmethod
    def load(cls, job_dir: Path) -> Self | None:
        """Return the run that a job has begun and not ended.

        Raises:
            RunError: `run.json` is damaged.
        """
        path = cls.folder_of(job_dir) / _RUN
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")), folder=path.parent)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path}: expected the description of a run: {error}; delete {path.parent}") from error

    @classmethod
    def check(cls, begun: Self | None, dataset: str, job_dir: Path, *, resume: bool) -> None:
        """Check that a run may start now, or go on.

        Args:
            begun: the run that is half done.
            dataset: name of the data set that is to be trained on.
            resume: a half-done run is to go on.

        Raises:
            RunError: a run is half done and `resume` is not given, or the other way round; it is another run; or what
                it started from is no longer what the job has.
        """
        folder = cls.folder_of(job_dir)
        if begun is None:
            if resume:
                raise RunError(f"{folder}: expected a run that was begun, found none; leave --resume out")
            return
        if not resume:
            raise RunError(
                f"a run on the data set {begun.dataset!r} for version {begun.version} is half done: --resume goes on "
                f"with it; to give it up, delete {folder}"
            )
        if begun.dataset != dataset:
            raise RunError(
                f"the half-done run is on {begun.dataset!r}, expected {dataset!r}; to give it up, delete {folder}"
            )
        newest = marked(job_dir, VERSION_MARKER) or 0
        if newest > begun.newest_before:
            raise RunError(
                f"version {newest} was published since the half-done run for version {begun.version} began: what it "
                f"was trained from is no longer the newest; delete {folder} and train again"
            )
        parent_at = cls.written_at(job_dir, begun.parent)
        if begun.parent and (parent_at is None or begun.parent_at not in (None, parent_at)):
            raise RunError(
                f"version {begun.parent}, from which the half-done run for version {begun.version} started, "
                f"{'is gone' if parent_at is None else 'is another one now'}, as after a rollback; delete {folder} and "
                "train again"
            )

    @classmethod
    @contextmanager
    def starting(cls, job_dir: Path) -> Iterator[None]:
        """Delete what a start leaves that fails before the run is noted: no deletion would find its rows later."""
        folder = cls.folder_of(job_dir)
        try:
            yield
        except BaseException:
            if not (folder / _RUN).exists():
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def check_digest(self, digest: str) -> None:
        """Check that the rows and the settings are still those that the run began with.

        Raises:
            RunError: they are not.
        """
        if self.digest != digest:
            raise RunError(
                "the rows or the settings are others than those of the half-done run: put them back, or delete "
                f"{self.folder} and train again"
            )

    def save(self) -> None:
        """Begin the run: from here on it is half done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fields = {name: value for name, value in asdict(self).items() if name != "folder"}
        replace_text(self.folder / _RUN, json.dumps(fields))
        sync(self.folder.parent)

    def is_in_place(self, job_dir: Path) -> bool:
        """Return whether its version is in the policy's job, if perhaps without the markers that make it known."""
        return json_object(step_directory(job_dir, self.version) / TRAINED_ON).get("run") == self.id

    def is_published(self, job_dir: Path) -> bool:
        """Return whether its version is in the policy's job and known to the Explorer."""
        return (marked(job_dir, VERSION_MARKER) or 0) >= self.version and self.is_in_place(job_dir)

    def trained_on(self, **said: Any) -> Mapping[str, Any]:
        """Return `trained_on.json` of its version: `said`, and which answers the online Trainer takes from then on."""
        whole = {"run": self.id, "parent": self.parent, "sampled_since": self.version}
        return {**whole, "experiences": 0, "msg_ids": [], **said}

    def end(self) -> None:
        """Delete the run's folder, `run.json` last."""
        for path in self.folder.iterdir():
            if path.name != _RUN:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
