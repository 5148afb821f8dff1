"""A lane's directory: each version is a higher number, whole before the marker names it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from checkpoint_job import CheckpointJob, weights
from killed_anywhere import copies_killed_anywhere

from slipstream.versions import keeping, lanes
from slipstream.versions.files import NotPlaced
from slipstream.versions.lanes import LaneStep


@pytest.fixture
def lane(tmp_path: Path) -> Path:
    return tmp_path / "lane" / "job"


def kept(folder: Path, *versions: int) -> Path:
    """A folder of kept versions."""
    job = CheckpointJob(folder / "job")
    for version in versions:
        job.publish(version)
        keeping.keep(job.path, folder / "keep", version, copy=False)
    return folder / "keep"


def put(lane: Path, keep: Path, version: int, *, anew: bool = False) -> int:
    return lanes.put(lane, keep / str(version), version, copy=False, anew=anew)


def marker(lane: Path) -> int:
    return int((lane / "latest_state_dict_iteration.txt").read_text())


def test_each_version_is_a_higher_number_also_an_older_one(tmp_path: Path, lane: Path) -> None:
    keep = kept(tmp_path, 7, 8)
    assert lanes.newest(lane) is None
    assert [put(lane, keep, version) for version in (8, 7, 8)] == [1, 2, 3]
    assert marker(lane) == 3
    assert json.loads((lane / "trainer_meta.json").read_text()) == {"latest_iteration": 3}
    assert lanes.newest(lane) == LaneStep(3, 8)
    assert [weights(lane / f"global_step_{step}") for step in (1, 2, 3)] == [
        "weights of 8",
        "weights of 7",
        "weights of 8",
    ]
    file = Path("actor", "huggingface", "model.safetensors")
    assert os.path.samefile(lane / "global_step_3" / file, keep / "8" / file), "without a copy"


def test_the_version_that_is_there_keeps_its_number_unless_it_is_to_be_loaded_again(tmp_path: Path, lane: Path) -> None:
    keep = kept(tmp_path, 8)
    assert [put(lane, keep, 8), put(lane, keep, 8), put(lane, keep, 8, anew=True)] == [1, 1, 2]


def test_other_weights_under_the_same_number_are_another_version(tmp_path: Path, lane: Path) -> None:
    keep = kept(tmp_path, 8)
    assert put(lane, keep, 8) == 1
    keeping.release(keep, 8)
    job = CheckpointJob(tmp_path / "job")
    job.prune(8)
    job.publish(8, "other weights of 8")
    keeping.keep(job.path, keep, 8, copy=True)
    assert [put(lane, keep, 8), put(lane, keep, 8)] == [2, 2]
    assert [weights(lane / f"global_step_{step}") for step in (1, 2)] == ["weights of 8", "other weights of 8"]


def test_old_steps_go_but_for_those_that_may_be_loading(tmp_path: Path, lane: Path) -> None:
    keep = kept(tmp_path, 1, 2)
    for version in (1, 2, 1, 2, 1):
        put(lane, keep, version)
    assert sorted(path.name for path in lane.glob("global_step_*")) == [f"global_step_{step}" for step in (3, 4, 5)]
    assert weights(keep / "1") == "weights of 1"


def test_a_marker_without_its_step_is_counted_on_from(tmp_path: Path, lane: Path) -> None:
    keep = kept(tmp_path, 1)
    lane.mkdir(parents=True)
    (lane / "latest_state_dict_iteration.txt").write_text("41")
    assert lanes.newest(lane) == LaneStep(41, None)
    assert put(lane, keep, 1) == 42


@pytest.mark.parametrize("left", ["latest_checkpointed_iteration.txt", ".trainer.lock"])
def test_a_trainers_directory_is_refused(tmp_path: Path, lane: Path, left: str) -> None:
    keep = kept(tmp_path, 1)
    lane.mkdir(parents=True)
    (lane / left).touch()
    with pytest.raises(NotPlaced, match=rf"a Trainer has left {left}"):
        put(lane, keep, 1)
    assert lanes.newest(lane) is None


def test_a_version_that_is_not_whole_leaves_the_lane_as_it_was(tmp_path: Path, lane: Path) -> None:
    keep = kept(tmp_path, 1, 2)
    put(lane, keep, 1)
    (keep / "2" / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(NotPlaced, match="the file is gone"):
        put(lane, keep, 2)
    with pytest.raises(NotPlaced, match="no kept version is there"):
        put(lane, keep, 3)
    assert lanes.newest(lane) == LaneStep(1, 1)


@pytest.mark.slow
def test_killed_anywhere_the_lane_has_the_old_version_or_the_new_one_whole(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    keep = kept(folder, 1, 2)
    for version in (1, 2, 1):
        put(folder / "lane", keep, version)
    copies = copies_killed_anywhere("version_steps", "put_2", folder)
    assert len(copies) > 15
    told = set()
    for copy in copies:
        step = lanes.newest(copy / "lane")
        assert step is not None
        told.add((step.step, step.version))
        assert weights(copy / "lane" / f"global_step_{step.step}") == f"weights of {step.version}"
        assert marker(copy / "lane") == step.step
        again = put(copy / "lane", copy / "keep", 2)
        assert again >= step.step
        assert lanes.newest(copy / "lane") == LaneStep(again, 2)
        assert weights(copy / "lane" / f"global_step_{again}") == "weights of 2"
        left = [path.name for path in (copy / "lane").iterdir() if path.is_dir() and path.name.startswith(".")]
        assert left == []
    assert told == {(3, 1), (4, 2)}
