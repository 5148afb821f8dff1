"""Checkpoints in a Trainer's directory: only whole ones are found, of either engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from checkpoint_job import CheckpointJob

from slipstream.versions import checkpoints


@pytest.fixture
def job(tmp_path: Path) -> CheckpointJob:
    return CheckpointJob(tmp_path / "job")


def names(job: CheckpointJob, version: int) -> set[str]:
    found = checkpoints.look(job.path, version)
    return set() if found is None else set(found.files)


def test_a_step_is_published_once_a_marker_names_it(job: CheckpointJob) -> None:
    assert checkpoints.published(job.path) == []
    job.write(1)
    assert checkpoints.published(job.path) == []
    job.mark(1)
    job.write(2)
    assert checkpoints.published(job.path) == [1]
    (job.path / "latest_state_dict_iteration.txt").write_text("")  # a Trainer that writes it at this moment
    assert checkpoints.published(job.path) == []


def test_what_only_a_trainer_needs_is_left_out(job: CheckpointJob) -> None:
    job.publish(1)
    assert names(job, 1) == {
        "trained_on.json",
        "actor/huggingface/config.json",
        "actor/huggingface/model.safetensors",
    }


def test_an_export_of_trinity_is_taken_once_the_second_marker_names_its_step(job: CheckpointJob) -> None:
    job.sync(3)
    state_dict = {"actor/model.safetensors", "actor/huggingface/config.json"}
    assert names(job, 3) == state_dict
    shard = job.step(3) / "actor" / "huggingface" / "model-00001-of-00002.safetensors"
    shard.write_text("half an export")
    assert names(job, 3) == state_dict, "the export is being written"
    shard.unlink()
    job.export(3)
    assert names(job, 3) == state_dict | {"actor/huggingface/model.safetensors"}


def test_an_export_that_lacks_a_shard_is_not_whole(job: CheckpointJob) -> None:
    step = job.publish(1) / "actor" / "huggingface"
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (step / "model.safetensors").unlink()
    (step / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (step / shards["a"]).write_text("one half")
    assert names(job, 1) == set()
    (step / shards["b"]).write_text("the other")
    assert {f"actor/huggingface/{shard}" for shard in shards.values()} < names(job, 1)


def test_a_step_without_weights_is_none(job: CheckpointJob) -> None:
    step = job.publish(1)
    (step / "actor" / "huggingface" / "model.safetensors").unlink()
    assert checkpoints.look(job.path, 1) is None
    assert checkpoints.look(job.path, 7) is None


def test_what_the_trainer_says_of_it_is_taken_where_it_makes_sense(job: CheckpointJob) -> None:
    job.publish(4, parent=2, experiences=12, metrics={"loss": 0.5, "broken": float("nan"), "note": "text", "on": True})
    found = checkpoints.look(job.path, 4)
    assert found is not None
    told = checkpoints.describe(found, below=3)
    assert (told.parent, told.experiences, told.metrics) == (2, 12, {"loss": 0.5})
    job.publish(5, parent=-1, experiences="many", metrics=[1])
    found = checkpoints.look(job.path, 5)
    assert found is not None
    told = checkpoints.describe(found, below=4)
    assert (told.parent, told.experiences, told.metrics) == (4, None, None)
