from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from slipstream.embedded import checkpoints
from slipstream.embedded.checkpoints import CheckpointError
from slipstream.trinity.checkpoint_files import steps


def weights_of(value: float):
    def save(path: Path) -> None:
        path.mkdir()
        save_file({"w": torch.full((2,), value)}, path / "model.safetensors")

    return save


def fail_after_weights(path: Path) -> None:
    weights_of(9.0)(path)
    raise OSError("no space left on device")


def test_nothing_is_published_at_first(tmp_path: Path) -> None:
    assert checkpoints.latest_version(tmp_path / "not-yet-there") is None


def test_a_published_version_can_be_loaded(tmp_path: Path) -> None:
    checkpoints.publish(tmp_path, 3, weights_of(1.5), trained_on={"msg_ids": ["a"]})

    assert checkpoints.latest_version(tmp_path) == 3
    assert checkpoints.load_weights(tmp_path, 3)["w"].tolist() == [1.5, 1.5]
    assert checkpoints.weights_path(tmp_path, 3) == tmp_path / "global_step_3" / "actor" / "huggingface"
    assert (tmp_path / "latest_state_dict_iteration.txt").read_text() == "3"
    assert json.loads((tmp_path / "trainer_meta.json").read_text()) == {"latest_iteration": 3}
    assert json.loads((tmp_path / "global_step_3/trained_on.json").read_text()) == {"msg_ids": ["a"]}


def test_another_user_can_read_a_version(tmp_path: Path) -> None:
    def save(path: Path) -> None:
        weights_of(1.0)(path)
        templates = path / "additional_chat_templates"  # as transformers writes them where a model has several
        templates.mkdir(mode=0o700)
        (templates / "tool_use.jinja").touch(mode=0o600)

    checkpoints.publish(tmp_path, 1, save)
    version = checkpoints.weights_path(tmp_path, 1)
    modes = {path.name: path.stat().st_mode & 0o777 for path in version.rglob("*")}
    assert modes == {"model.safetensors": 0o644, "additional_chat_templates": 0o755, "tool_use.jinja": 0o644}


def test_only_a_step_with_its_training_state_is_a_full_one(tmp_path: Path) -> None:
    checkpoints.publish(tmp_path, 1, weights_of(1.0), training_state={"state": {0: {"step": torch.tensor(1.0)}}})
    checkpoints.publish(tmp_path, 2, weights_of(2.0))

    assert (tmp_path / "global_step_1" / ".full_checkpoint").exists()
    assert not (tmp_path / "global_step_2" / ".full_checkpoint").exists()
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "1"
    assert checkpoints.load_training_state(tmp_path, 1) == {"state": {0: {"step": torch.tensor(1.0)}}}
    assert checkpoints.load_training_state(tmp_path, 2) is None


def test_a_write_that_fails_changes_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    checkpoints.publish(tmp_path, 1, weights_of(1.0))
    with pytest.raises(OSError, match="no space"):
        checkpoints.publish(tmp_path, 2, fail_after_weights)

    assert checkpoints.latest_version(tmp_path) == 1
    assert steps(tmp_path) == [1]
    checkpoints.publish(tmp_path, 2, weights_of(2.0))
    assert checkpoints.load_weights(tmp_path, 2)["w"].tolist() == [2.0, 2.0]


def test_a_step_that_no_marker_names_is_written_again(tmp_path: Path) -> None:
    checkpoints.publish(tmp_path, 1, weights_of(1.0))
    checkpoints.publish(tmp_path, 2, weights_of(2.0))
    # as a Trainer leaves it that dies between the rename and the marker
    (tmp_path / "latest_state_dict_iteration.txt").write_text("1")

    checkpoints.publish(tmp_path, 2, weights_of(2.5))
    assert checkpoints.load_weights(tmp_path, 2)["w"].tolist() == [2.5, 2.5]


def test_versions_only_rise(tmp_path: Path) -> None:
    checkpoints.publish(tmp_path, 4, weights_of(1.0))
    with pytest.raises(CheckpointError, match="version 4 is not above the published 4"):
        checkpoints.publish(tmp_path, 4, weights_of(2.0))


def test_pruning_keeps_the_newest_and_what_a_marker_names(tmp_path: Path) -> None:
    for version in range(1, 6):
        checkpoints.publish(tmp_path, version, weights_of(version), training_state={} if version == 1 else None)

    assert checkpoints.prune(tmp_path, keep=0) == []
    assert checkpoints.prune(tmp_path, keep=2) == [2, 3]
    assert sorted(steps(tmp_path)) == [1, 4, 5]


@pytest.mark.parametrize("text", ["", "newest", "-1", "1.5"])
def test_a_damaged_marker_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "latest_state_dict_iteration.txt").write_text(text)
    with pytest.raises(CheckpointError, match=r"latest_state_dict_iteration.txt: expected a step number"):
        checkpoints.latest_version(tmp_path)


def test_missing_and_damaged_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no weights of version 7"):
        checkpoints.load_weights(tmp_path, 7)
    checkpoints.publish(tmp_path, 1, weights_of(1.0))
    (tmp_path / "global_step_1/actor/huggingface/model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        checkpoints.load_weights(tmp_path, 1)
