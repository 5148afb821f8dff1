"""`slipstream rollback` on what the embedded Trainer and Trinity's leave behind."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import yaml
from test_trainer import Job

from slipstream.embedded import checkpoints
from slipstream.embedded.trainer import Trainer
from slipstream.rollback import RollbackError, rollback
from slipstream.trinity.job import TrainerRuns, trainer_lock


@pytest.fixture
def job(tmp_path: Path, tiny_model: Path) -> Job:
    return Job(tmp_path, tiny_model)


def train(job: Job) -> None:
    Trainer(job.config, threading.Event()).run()


def trained_on(job: Job, version: int) -> list[str]:
    told: dict[str, list[str]] = json.loads((job.directory / f"global_step_{version}" / "trained_on.json").read_text())
    return told["msg_ids"]


def test_training_goes_on_from_the_version_with_new_experiences_only(job: Job) -> None:
    old = job.commit(3)
    train(job)
    assert checkpoints.latest_version(job.directory) == 3
    first = checkpoints.load_weights(job.directory, 1)

    done = rollback(1, job.file)

    assert (done.steps, done.discarded) == ([2, 3], 8)
    assert sorted(path.name for path in done.folder.iterdir()) == ["global_step_2", "global_step_3"]
    train(job)
    assert checkpoints.latest_version(job.directory) == 1, "nothing that was discarded is trained on"
    new = job.commit(1)
    job.fields["algorithm"]["optimizer"]["lr"] = 1e-30  # the weights stay those that it begins with
    train(job)
    assert checkpoints.latest_version(job.directory) == 2
    assert trained_on(job, 2) == new
    assert not set(new) & set(old)
    begun = checkpoints.load_weights(job.directory, 2)
    assert all(begun[name].equal(weight) for name, weight in first.items())


def test_again_it_changes_nothing(job: Job) -> None:
    job.commit(2)
    train(job)
    rollback(1, job.file)
    done = rollback(1, job.file)
    assert (done.steps, done.discarded) == ([], 0)


def test_what_waits_from_a_discarded_version_is_discarded_too(job: Job) -> None:
    job.commit(2)
    train(job)
    job.commit(1)  # sampled by version 0
    assert rollback(1, job.file).discarded == 4


def test_it_is_refused_while_the_trainer_runs(job: Job) -> None:
    job.commit(2)
    train(job)
    with trainer_lock(job.directory), pytest.raises(TrainerRuns, match="stop it first"):
        rollback(1, job.file)
    assert checkpoints.latest_version(job.directory) == 2


def trinity_job(folder: Path, steps: dict[int, bool]) -> Path:
    """Steps as Trinity leaves them; True for full ones."""
    job = folder / "slipstream" / "policy"
    for step, full in steps.items():
        (job / f"global_step_{step}" / "actor").mkdir(parents=True)
        if full:
            (job / f"global_step_{step}" / ".full_checkpoint").touch()
    (job / "latest_state_dict_iteration.txt").write_text(str(max(steps)))
    (job / "latest_checkpointed_iteration.txt").write_text(str(max(step for step, full in steps.items() if full)))
    (job / "trainer_meta.json").write_text(json.dumps({"latest_iteration": max(steps), "other": 1}))
    file = folder / "trainer.yaml"
    fields = {"mode": "train", "project": "slipstream", "name": "policy", "checkpoint_root_dir": str(folder)}
    file.write_text(yaml.safe_dump(fields))
    return file


def test_trinitys_markers_and_later_steps(tmp_path: Path) -> None:
    done = rollback(2, trinity_job(tmp_path, {2: True, 4: True, 5: False}))
    job = tmp_path / "slipstream" / "policy"
    assert done.steps == [4, 5]
    assert (job / "latest_state_dict_iteration.txt").read_text() == "2"
    assert (job / "latest_checkpointed_iteration.txt").read_text() == "2"
    assert json.loads((job / "trainer_meta.json").read_text()) == {"latest_iteration": 2, "other": 1}
    assert [path.name for path in job.glob("global_step_*")] == ["global_step_2"]


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (9, "version 9: expected one up to 5, the newest; there are 2, 4, 5"),
        (3, "version 3 was deleted .* there are 2, 4, 5"),
        (5, "version 5 is no full checkpoint .* full ones: 2, 4"),
    ],
)
def test_what_cannot_be_gone_back_to_is_refused(tmp_path: Path, version: int, why: str) -> None:
    file = trinity_job(tmp_path, {2: True, 4: True, 5: False})
    with pytest.raises(RollbackError, match=why):
        rollback(version, file)
    assert (tmp_path / "slipstream" / "policy" / "latest_state_dict_iteration.txt").read_text() == "5"
