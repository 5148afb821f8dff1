"""Kept versions: whole or not at all, and what they were, whatever the Trainer does."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from checkpoint_job import CheckpointJob, weights
from killed_anywhere import copies_killed_anywhere

from slipstream.versions import keeping
from slipstream.versions.files import NotPlaced
from slipstream.versions.keeping import NotKept


@pytest.fixture
def job(tmp_path: Path) -> CheckpointJob:
    return CheckpointJob(tmp_path / "job")


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    return tmp_path / "keep"


def test_its_weights_outlive_the_trainers_pruning_and_take_no_space_before(job: CheckpointJob, keep: Path) -> None:
    step = job.publish(1)
    kept = keeping.keep(job.path, keep, 1, copy=False)
    assert kept == keep / "1"
    file = Path("actor", "huggingface", "model.safetensors")
    assert os.path.samefile(step / file, kept / file)
    job.prune(1)
    assert weights(kept) == "weights of 1"
    assert not list(kept.rglob("training_state.pt"))
    assert keeping.keep(job.path, keep, 1, copy=False) == kept, "and again"
    assert keeping.there(keep) == [1]


def test_copies_are_files_of_their_own(job: CheckpointJob, keep: Path) -> None:
    step = job.publish(1)
    kept = keeping.keep(job.path, keep, 1, copy=True)
    (step / "actor" / "huggingface" / "model.safetensors").write_text("written again")
    assert weights(kept) == "weights of 1"
    keeping.files_of(kept)


def test_what_is_not_whole_or_not_there_is_not_kept_and_the_error_says_what_is(job: CheckpointJob, keep: Path) -> None:
    job.publish(1)
    job.publish(2)
    job.prune(1)
    job.write(3)
    with pytest.raises(NotKept, match=r"version 1: not in .*deleted it.*published there: 2$"):
        keeping.keep(job.path, keep, 1, copy=False)
    with pytest.raises(NotKept, match=r"version 3: not in .*has not published it"):
        keeping.keep(job.path, keep, 3, copy=False)
    (job.step(2) / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(NotKept, match=r"version 2: .* has no whole weights of it"):
        keeping.keep(job.path, keep, 2, copy=False)
    with pytest.raises(NotKept, match=r"expected serving\.checkpoints"):
        keeping.keep(None, keep, 2, copy=False)
    assert not keep.exists()


def test_a_version_that_is_deleted_while_it_is_kept_is_not_kept_in_part(
    job: CheckpointJob, keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.publish(1)
    link = os.link

    def deleted_after_the_first(source: Any, target: Any) -> None:
        link(source, target)
        (job.step(1) / "trained_on.json").unlink(missing_ok=True)

    monkeypatch.setattr(os, "link", deleted_after_the_first)
    with pytest.raises(NotPlaced, match=r"deleted"):
        keeping.keep(job.path, keep, 1, copy=False)
    assert keeping.there(keep) == []


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EXDEV, "expected the file system of the weights, found another"),
        (errno.EPERM, "belong to another user"),
    ],
)
def test_a_link_that_is_not_possible_is_explained(
    job: CheckpointJob, keep: Path, monkeypatch: pytest.MonkeyPatch, number: int, told: str
) -> None:
    job.publish(1)

    def refused(source: Any, target: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(NotPlaced, match=told) as caught:
        keeping.keep(job.path, keep, 1, copy=False)
    assert "serving.copy_files" in str(caught.value)
    assert keeping.there(keep) == []
    assert weights(keeping.keep(job.path, keep, 1, copy=True)) == "weights of 1"


def test_weights_that_were_written_again_are_named_and_not_used(job: CheckpointJob, keep: Path) -> None:
    step = job.publish(1)
    kept = keeping.keep(job.path, keep, 1, copy=False)
    (step / "actor" / "huggingface" / "model.safetensors").write_text("of another training")
    with pytest.raises(NotKept, match=r"model\.safetensors: the file was written again"):
        keeping.files_of(kept)
    (kept / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(NotKept, match=r"model\.safetensors: the file is gone"):
        keeping.files_of(kept)


def test_an_export_that_comes_later_is_added(job: CheckpointJob, keep: Path) -> None:
    job.sync(3)
    kept = keeping.keep(job.path, keep, 3, copy=False)
    assert not (kept / "actor" / "huggingface" / "model.safetensors").exists()
    job.export(3)
    keeping.keep(job.path, keep, 3, copy=False)
    assert weights(kept) == "weights of 3"
    assert "actor/huggingface/model.safetensors" in keeping.files_of(kept)


def test_another_training_of_the_same_number_does_not_mix_with_it(job: CheckpointJob, keep: Path) -> None:
    job.publish(1, "first")
    kept = keeping.keep(job.path, keep, 1, copy=False)
    job.prune(1)
    step = job.publish(1, "second")
    (step / "actor" / "huggingface" / "tokenizer.json").write_text("{}")
    keeping.keep(job.path, keep, 1, copy=False)
    assert weights(kept) == "first"
    assert not (kept / "actor" / "huggingface" / "tokenizer.json").exists()


def test_what_is_released_is_gone(job: CheckpointJob, keep: Path) -> None:
    job.publish(1)
    keeping.keep(job.path, keep, 1, copy=False)
    keeping.release(keep, 1)
    keeping.release(keep, 1)
    assert list(keep.iterdir()) == []


@pytest.mark.slow
def test_killed_anywhere_it_is_whole_or_not_there_and_the_next_try_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    CheckpointJob(folder / "job").publish(2)
    copies = copies_killed_anywhere("version_steps", "keep_2", folder)
    assert len(copies) > 10
    for copy in copies:
        keep = copy / "keep"
        if keeping.there(keep):
            assert weights(keep / "2") == "weights of 2"
            keeping.files_of(keep / "2")
        kept = keeping.keep(copy / "job", keep, 2, copy=False)
        assert weights(kept) == "weights of 2"
        assert {path.name for path in keep.iterdir()} == {"2"}, "nothing is left over"
