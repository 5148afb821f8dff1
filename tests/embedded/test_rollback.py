"""`slipstream rollback` on what the embedded Trainer and Trinity's leave behind."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from running_up import ROOT, Up, slipstream_up
from scripted import production_app
from serving import serving, until
from test_trainer import Job

from slipstream.embedded import checkpoints
from slipstream.local.rollback import RollbackError, rollback
from slipstream.trinity.job import TrainerRuns, trainer_lock


@pytest.fixture
def job(tmp_path: Path, tiny_model: Path) -> Job:
    return Job(tmp_path, tiny_model)


def train(job: Job) -> None:
    from slipstream.embedded.trainer import Trainer

    Trainer(job.config, threading.Event()).run()


def trained_on(job: Job, version: int) -> list[str]:
    told: dict[str, list[str]] = json.loads((job.directory / f"global_step_{version}" / "trained_on.json").read_text())
    return told["msg_ids"]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_it_is_refused_while_the_trainer_runs(job: Job) -> None:
    job.commit(2)
    train(job)
    with trainer_lock(job.directory), pytest.raises(TrainerRuns, match="stop it first"):
        rollback(1, job.file)
    assert checkpoints.latest_version(job.directory) == 2


@pytest.mark.slow
async def test_the_whole_stack_goes_on_from_the_version(tiny_model: Path, tmp_path: Path) -> None:
    """As the docs have it: stop all, roll back, start all; the training goes on, and the sidecar says from where."""
    (tmp_path / "overlay.yaml").write_text("model: {max_response_tokens: 16}\n")
    overlays = [tmp_path / "overlay.yaml"]

    async def version_after(up: Up, prompt: str, version: int) -> dict[str, Any]:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
        await up.client.post("/v1/chat/completions", json=body)

        async def served() -> Any:
            policy = (await up.client.get("/status")).json()["policy"]
            return policy["version"] == version and policy

        return cast(dict[str, Any], await until(served, 180, f"no version {version}"))

    async with serving(production_app()) as production_url:
        start = partial(
            slipstream_up,
            tmp_path,
            tiny_model,
            production_url,
            overlays=overlays,
            SLIPSTREAM_SELECTION="{sampling: {rate: 1}}",
            SLIPSTREAM_RUNS__REPEAT_TIME="8",
            SLIPSTREAM_REWARDS__CALCULATORS="[{python: 'my_rewards:score'}]",
            SLIPSTREAM_COMMIT__MAX_PENDING="8",
        )
        (tmp_path / "my_rewards.py").write_text("def score(run):\n    return run.run_id % 2\n")
        async with start() as up:
            for number in (1, 2, 3):
                assert (await version_after(up, f"question {number}", number))["rolled_back_from"] is None
        options = ["--overlay", str(ROOT / "overlays" / "small-cpu.yaml"), "--overlay", str(overlays[0])]
        command = [sys.executable, "-m", "slipstream", "rollback", "1", *options]
        rolled_back = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=up.environment)
        assert await rolled_back.wait() == 0
        job = tmp_path / "checkpoints" / "slipstream" / "policy"
        before = json.loads((job / "global_step_1" / "trained_on.json").read_text())["msg_ids"]
        discarded = [
            msg_id
            for told in (job / "rolled_back").glob("*/global_step_*/trained_on.json")
            for msg_id in json.loads(told.read_text())["msg_ids"]
        ]
        async with start() as up:
            assert (await version_after(up, "question 4", 2))["rolled_back_from"] == 3
        assert "policy_rolled_back" in up.log
        trained = json.loads((job / "global_step_2" / "trained_on.json").read_text())["msg_ids"]
        assert (len(before), len(discarded), len(trained)) == (8, 16, 8)
        assert not set(trained) & {*before, *discarded}


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


@pytest.mark.parametrize("from_data", [False, True])
def test_trinitys_markers_and_later_steps(tmp_path: Path, from_data: bool) -> None:
    file = trinity_job(tmp_path, {2: True, 4: True, 5: False})
    job = tmp_path / "slipstream" / "policy"
    if from_data:  # which is no sign of the embedded engine, whose buffer has other columns
        (job / "global_step_2" / "trained_on.json").write_text('{"engine": "trinity"}')
    done = rollback(2, file)
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
