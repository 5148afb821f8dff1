"""Full checkpoints that a Trainer of Trinity's saved before its restart, and would keep for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.trinity.checkpoint_files import RESUME_MARKER, VERSION_MARKER, steps
from slipstream.trinity.old_checkpoints import OldCheckpoints


class Job:
    """A Trainer's job: step 3 is of a synchronisation alone, the others are full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "p" / "n"
        self.document: dict[str, Any] = {
            "mode": "train", "project": "p", "name": "n", "checkpoint_root_dir": str(folder),
            "trainer": {"max_checkpoints_to_keep": 2},
        }  # fmt: skip
        for step in (2, 3, 4, 6, 8, 10):
            self.save(step, full=step != 3)
        self.mark(resume="8", version="9")

    def save(self, step: int, *, full: bool = True) -> None:
        (self.folder / f"global_step_{step}" / "actor").mkdir(parents=True)
        (self.folder / f"global_step_{step}" / "actor" / "model.safetensors").write_text("weights")
        if full:
            (self.folder / f"global_step_{step}" / ".full_checkpoint").touch()

    def mark(self, *, resume: str, version: str) -> None:
        (self.folder / RESUME_MARKER).write_text(resume)
        (self.folder / VERSION_MARKER).write_text(version)

    def there(self) -> list[int]:
        return sorted(steps(self.folder))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_the_oldest_full_ones_are_deleted_until_as_many_are_left_as_are_kept(job: Job) -> None:
    (job.folder / ".global_step_1.deleted").mkdir()  # of one that was killed
    old = OldCheckpoints(job.document)
    old.delete()
    assert job.there() == [3, 6, 8, 10], "not what is no full one, nor what is being written or was given up"
    assert not list(job.folder.glob(".*.deleted"))

    job.mark(resume="10", version="10")
    old.delete()
    assert job.there() == [3, 8, 10], "so it is while the Trainer runs"


def test_what_a_marker_names_is_never_deleted(job: Job) -> None:
    job.document["trainer"] = {"max_checkpoints_to_keep": 1}
    job.mark(resume="8", version="2")
    OldCheckpoints(job.document).delete()
    assert job.there() == [2, 3, 8, 10]


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer": {"max_checkpoints_to_keep": 0}},
        {"trainer": {"max_checkpoints_to_keep": -1}},
        {"trainer": {}},
        {"trainer": None},
        {"trainer": {"max_checkpoints_to_keep": True}},
        {"trainer": {"max_checkpoints_to_keep": 2, "trainer_type": "tinker"}},
        {"mode": "serve"},
        {"continue_from_checkpoint": False},
        {"stages": [{"stage_name": "one"}]},
    ],
    ids=str,
)
def test_nothing_is_deleted_where_nothing_says_so(job: Job, changes: dict[str, Any]) -> None:
    before = job.there()
    OldCheckpoints({**job.document, **changes}).delete()
    assert job.there() == before


@pytest.mark.parametrize(("resume", "version"), [("", "9"), ("8", ""), ("-8", "9"), (None, "9"), ("8", None)])
def test_nothing_is_deleted_while_a_marker_names_nothing(job: Job, resume: str | None, version: str | None) -> None:
    """Trinity truncates them before it writes."""
    before = job.there()
    job.mark(resume=resume or "", version=version or "")
    for name, text in ((RESUME_MARKER, resume), (VERSION_MARKER, version)):
        if text is None:
            (job.folder / name).unlink()
    OldCheckpoints(job.document).delete()
    assert job.there() == before


def test_a_checkpoint_that_cannot_be_deleted_ends_no_trainer(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(Path, "rename", refused)
    OldCheckpoints(job.document).delete()
    assert 2 in job.there()
