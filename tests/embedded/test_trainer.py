from __future__ import annotations

import json
import multiprocessing
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from sqlalchemy import create_engine, text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import SET_ASIDE, Answer, ExperienceStore
from slipstream.errors import ConfigError
from slipstream.trinity.checkpoint_files import steps

if TYPE_CHECKING:
    from slipstream.embedded.trainer import Trainer

# a process of its own is what `kill -9` needs; the server has imported torch before it forks the next one
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["slipstream.embedded.trainer"])


class Job:
    """A job directory with its database, and a Trainer's configuration for it."""

    def __init__(self, tmp_path: Path, model: Path) -> None:
        self._path = tmp_path / "trainer.yaml"
        self.fields: dict[str, Any] = {
            "mode": "train",
            "project": "test",
            "name": "job",
            "checkpoint_root_dir": str(tmp_path),
            "model": {"model_path": str(model), "max_model_len": 512},
            "algorithm": {"algorithm_type": "grpo", "optimizer": {"lr": 1e-4}},
            "buffer": {"train_batch_size": 4, "trainer_input": {"experience_buffer": {"max_read_timeout": 0.1}}},
            "trainer": {"max_checkpoints_to_keep": 0, "dtype": "float32"},
        }
        self._count = 0

    @property
    def config(self) -> EngineConfig:
        return EngineConfig.model_validate(self.fields)

    @property
    def file(self) -> Path:
        self._path.write_text(yaml.safe_dump(self.fields))
        return self._path

    @property
    def directory(self) -> Path:
        return self.config.job_dir

    def commit(self, groups: int, size: int = 4, logprob: float = -11.0) -> list[str]:
        """Commits groups of random answers with rewards 0, 1, 2, ...; returns their msg_ids."""
        store = ExperienceStore(self.config.database_url, "experience_buffer")
        source = np.random.default_rng(self._count)
        msg_ids = []
        for _ in range(groups):
            task_id = f"task-{self._count}"
            prompt = source.integers(10, 40000, 6)
            for run_id in range(size):
                msg_id = f"m{self._count}"
                self._count += 1
                answer = source.integers(10, 40000, 3)
                store.record([Answer(msg_id, prompt, answer, np.full(3, logprob), 0)])
                store.feedback([msg_id], float(run_id), task_id, run_id)
                msg_ids.append(msg_id)
        store.commit("grpo")
        store.close()
        return msg_ids

    def run(self) -> None:
        self.trainer(threading.Event()).run()

    def trainer(self, stop: threading.Event) -> Trainer:
        from slipstream.embedded.trainer import Trainer

        return Trainer(self.config, stop)

    def steps(self) -> dict[str, int | None]:
        """Which step took which experience."""
        engine = create_engine(self.config.database_url)
        with engine.connect() as connection:
            rows = connection.execute(text("SELECT msg_id, train_step FROM experience_buffer")).all()
        engine.dispose()
        return {row.msg_id: row.train_step for row in rows}

    def trained_on(self) -> dict[int, list[str]]:
        """What each version says that it was trained on."""
        files = {v: self.directory / f"global_step_{v}/trained_on.json" for v in steps(self.directory)}
        return {version: json.loads(file.read_text()).get("msg_ids", []) for version, file in sorted(files.items())}

    def start(self) -> BaseProcess:
        from slipstream.embedded.trainer import train

        process = PROCESSES.Process(target=train, args=(self.config,))
        process.start()
        return process


@pytest.fixture
def job(tmp_path: Path, tiny_model: Path) -> Job:
    return Job(tmp_path, tiny_model)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.01)


def test_each_batch_becomes_a_version(job: Job) -> None:
    msg_ids = job.commit(groups=2)
    job.run()

    assert job.trained_on() == {1: msg_ids[:4], 2: msg_ids[4:]}
    assert checkpoints.latest_version(job.directory) == 2
    assert list(job.steps().values()) == [1] * 4 + [2] * 4
    first, second = (checkpoints.load_weights(job.directory, version) for version in (1, 2))
    assert any(not tensor.equal(second[name]) for name, tensor in first.items())


@pytest.mark.slow
def test_what_a_step_measured_is_on_the_board(job: Job) -> None:
    job.commit(groups=2)
    job.run()

    board = EventAccumulator(str(job.directory / "monitor" / "tensorboard"))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("train/reward_mean")] == [(1, 1.5), (2, 1.5)]
    for name in ("loss", "grad_norm", "kl_to_sampling", "clip_fraction", "seconds"):
        assert [event.step for event in board.Scalars(f"train/{name}")] == [1, 2]


@pytest.mark.slow
def test_versions_and_full_checkpoints_come_at_their_intervals(job: Job) -> None:
    job.fields["synchronizer"] = {"sync_interval": 2}
    job.fields["trainer"] |= {"save_interval": 3, "max_checkpoints_to_keep": 2}
    msg_ids = job.commit(groups=5)
    job.run()

    # 2, 3, 4, and 5 at the end; of them the newest two are kept, and the full one
    assert job.trained_on() == {3: msg_ids[8:12], 4: msg_ids[12:16], 5: msg_ids[16:]}
    assert (job.directory / "latest_checkpointed_iteration.txt").read_text() == "3"
    assert checkpoints.load_training_state(job.directory, 3) is not None
    assert checkpoints.load_training_state(job.directory, 4) is None


def test_training_ends_at_total_steps(job: Job) -> None:
    job.fields["trainer"] |= {"total_steps": 1}
    job.commit(groups=3)
    job.run()

    assert steps(job.directory) == [1]
    assert sum(step is None for step in job.steps().values()) == 8


@pytest.mark.slow
def test_less_than_a_batch_is_trained_on_when_nothing_more_comes(job: Job) -> None:
    job.fields["trainer"] |= {"partial_batch_after": 0.2, "total_steps": 1}
    msg_ids = job.commit(groups=1, size=3)
    job.run()

    assert job.trained_on() == {1: msg_ids}


@pytest.mark.slow
def test_each_commit_is_a_step_where_the_configuration_says_so(job: Job) -> None:
    job.fields["trainer"] |= {"step_per_commit": True}
    commits = [job.commit(groups, size) for groups, size in ((3, 4), (1, 2), (2, 2))]
    job.run()

    assert job.trained_on() == dict(enumerate(commits, start=1))


@pytest.mark.slow
def test_less_than_a_batch_waits_while_more_may_come(job: Job) -> None:
    job.fields["trainer"] |= {"total_steps": 1}
    first = job.commit(groups=1, size=3)
    stop = threading.Event()
    thread = threading.Thread(target=job.trainer(stop).run)
    thread.start()
    assert checkpoints.latest_version(job.directory) is None
    second = job.commit(groups=1, size=3)
    thread.join(60)

    assert job.trained_on() == {1: first + second}


@pytest.mark.slow
def test_a_batch_that_fails_again_and_again_is_set_aside_and_training_goes_on(job: Job) -> None:
    broken = job.commit(groups=1, logprob=float("nan"))
    sound = job.commit(groups=1)
    job.run()

    assert job.trained_on() == {1: sound}
    assert {job.steps()[msg_id] for msg_id in broken} == {SET_ASIDE}


@pytest.mark.slow
def test_a_version_published_by_another_is_gone_on_from(job: Job) -> None:
    job.fields["trainer"] |= {"total_steps": 8}
    job.fields["buffer"]["trainer_input"]["experience_buffer"]["max_read_timeout"] = 60
    job.commit(groups=1)
    thread = threading.Thread(target=job.run)
    thread.start()
    wait_for(lambda: checkpoints.latest_version(job.directory) == 1)
    # a roll back, live: older weights as a higher version
    older = checkpoints.weights_path(job.directory, 1)
    checkpoints.publish(job.directory, 7, lambda path: shutil.copytree(older, path) and None)
    msg_ids = job.commit(groups=1)
    thread.join(60)

    assert job.trained_on()[8] == msg_ids
    assert checkpoints.latest_version(job.directory) == 8


@pytest.mark.slow
def test_the_schedule_goes_by_the_number_of_the_version(job: Job, tiny_model: Path) -> None:
    checkpoints.publish(job.directory, 5, lambda path: shutil.copytree(tiny_model, path) and None)  # a data set's
    job.fields["algorithm"]["optimizer"] = {"lr": 1e-3, "lr_warmup_steps": 10, "weight_decay": 0.0}
    job.commit(groups=1)
    job.run()

    begun, after = (checkpoints.load_weights(job.directory, version) for version in (5, 6))
    moved = max(float((tensor - begun[name]).abs().max()) for name, tensor in after.items())
    assert moved == pytest.approx(5e-4, rel=1e-2), "the first step of Adam moves by the learning rate"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft 0.21's call
def test_other_adapters_than_a_full_checkpoint_has_are_refused_by_name(job: Job) -> None:
    job.fields["trainer"] |= {"save_interval": 1}
    job.commit(groups=1)
    job.run()
    job.fields["model"] |= {"lora_configs": [{"lora_rank": 4}]}
    with pytest.raises(ConfigError, match=r"model\.lora_configs: .*global_step_1/actor/training_state\.pt") as refused:
        job.run()
    assert "delete this file" in str(refused.value)

    (job.directory / "global_step_1" / "actor" / "training_state.pt").unlink()
    later = job.commit(groups=1)
    job.run()
    assert job.trained_on()[2] == later
    job.fields["model"] |= {"lora_configs": [{"lora_rank": 8}]}
    with pytest.raises(ConfigError, match=r"model\.lora_configs: .*global_step_2/actor/training_state\.pt"):
        job.run()
    job.fields["model"] |= {"lora_configs": [{"lora_rank": 4, "lora_alpha": 8}]}
    with pytest.raises(ConfigError, match=r"\.0\.lora_alpha: expected 32, as .*training_state\.pt was saved, found 8"):
        job.run()


@pytest.mark.slow
def test_what_was_never_published_is_trained_again_and_nothing_else(job: Job) -> None:
    msg_ids = job.commit(groups=1)
    job.run()
    later = job.commit(groups=1)
    # as a Trainer leaves it that dies in step 2
    store = ExperienceStore(job.config.database_url, "experience_buffer")
    assert [experience.msg_id for experience in store.claim(2, 4)] == later
    store.close()
    job.run()

    assert job.trained_on() == {1: msg_ids, 2: later}


@pytest.mark.slow
def test_kill_9_at_any_moment_trains_everything_once(job: Job) -> None:
    job.fields["buffer"]["trainer_input"]["experience_buffer"]["max_read_timeout"] = 1
    msg_ids = job.commit(groups=24)
    source = random.Random(4)
    for _ in range(4):
        before = checkpoints.latest_version(job.directory) or 0
        process = job.start()
        wait_for(lambda before=before: (checkpoints.latest_version(job.directory) or 0) > before)
        time.sleep(source.uniform(0, 0.5))  # anywhere in a step that takes about that long
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    process = job.start()
    process.join(120)

    assert process.exitcode == 0
    versions = job.trained_on()
    assert list(versions) == list(range(1, 25))
    assert sorted(msg_id for trained in versions.values() for msg_id in trained) == sorted(msg_ids)
    assert job.steps() == {msg_id: version for version, trained in versions.items() for msg_id in trained}


@pytest.mark.slow
def test_sigterm_ends_it_cleanly(job: Job) -> None:
    del job.fields["buffer"]["trainer_input"]
    job.commit(groups=1)
    process = job.start()
    wait_for(lambda: checkpoints.latest_version(job.directory) == 1)
    process.terminate()
    process.join(60)

    assert process.exitcode == 0
    assert list(job.steps().values()) == [1] * 4


@pytest.mark.slow
def test_signal_handlers_are_given_back(job: Job) -> None:
    from slipstream.embedded.trainer import train

    before = signal.getsignal(signal.SIGTERM)
    train(job.config)

    assert signal.getsignal(signal.SIGTERM) is before
