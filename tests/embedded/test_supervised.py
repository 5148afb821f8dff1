"""Training on a data set: a version like any other, whatever happens meanwhile."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from serving import serving, until
from sqlalchemy import create_engine, text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_model import save_byte_model

from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import DISCARDED, Answer, ExperienceStore
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.trinity.checkpoint_files import steps
from slipstream.trinity.job import TrainerRuns, trainer_lock

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing.*` is deprecated")]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["slipstream.embedded.supervised"])
ALGORITHMS = {Kind.SFT: "sft", Kind.PREFERENCE: "dpo", Kind.KTO: "kto"}
TAUGHT = "Whole numbers only."


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bytes") / "model"
    save_byte_model(directory)
    return directory


def config(path: Path, folder: Path, kind: Kind = Kind.SFT, /, **sections: Any) -> EngineConfig:
    fields: dict[str, Any] = {
        "mode": "train",
        "project": "test",
        "name": "job",
        "checkpoint_root_dir": str(folder),
        "model": {"model_path": str(path), "max_model_len": 512, **sections.pop("model", {})},
        "algorithm": {"algorithm_type": ALGORITHMS[kind], "optimizer": {"lr": 1e-3}, **sections.pop("algorithm", {})},
        "buffer": {"train_batch_size": 4, "total_epochs": 2},
        "trainer": {"dtype": "float32", "max_checkpoints_to_keep": 0, **sections.pop("trainer", {})},
        **sections,
    }
    return EngineConfig.model_validate(fields)


def rows(kind: Kind = Kind.SFT, count: int = 12) -> list[Row]:
    return [
        Row(
            kind,
            [{"role": "user", "content": f"Question {number}?"}],
            {"role": "assistant", "content": TAUGHT if kind is Kind.SFT else f"Answer {number}."},
            Provenance("t", "s", "default", Source.POLICY, labels=("odd",) if number % 2 else ()),
            rejected={"role": "assistant", "content": "I do not know."} if kind is Kind.PREFERENCE else None,
            good=bool(number % 2) if kind is Kind.KTO else None,
        )
        for number in range(count)
    ]


def train(settings: EngineConfig, data: Sequence[Row], kind: Kind = Kind.SFT, **options: Any) -> Any:
    from slipstream.datasets.trained_dataset import TrainedDataset
    from slipstream.embedded.supervised import train_rows

    resume = options.pop("resume", False)
    return train_rows(settings, data, TrainedDataset("support", "d1", kind, **options), resume=resume)


def start(settings: EngineConfig, data: Sequence[Row], kind: Kind) -> BaseProcess:
    process = PROCESSES.Process(target=train, args=(settings, data, kind))
    process.start()
    return process


def wait_for(condition: Callable[[], Any], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.01)


def weights(settings: EngineConfig, version: int = 1) -> dict[str, Any]:
    return checkpoints.load_weights(settings.job_dir, version)


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(tensor.equal(other[name]) for name, tensor in one.items())


def test_a_version_says_what_it_was_trained_on(byte_model: Path, tmp_path: Path) -> None:
    settings = config(byte_model, tmp_path)
    silent = replace(rows()[0], answer={"role": "assistant", "content": ""})

    done = train(settings, [*rows(), silent])

    assert (done.version, done.parent, done.steps, done.rows) == (1, 0, 6, 12)
    assert done.left_out == {"an answer without text and without calls": 1}
    said = json.loads((settings.job_dir / "global_step_1" / "trained_on.json").read_text())
    assert said["dataset"] == {
        "name": "support",
        "digest": "d1",
        "kind": "sft",
        "also": [],
        "rows": 12,
        "sources": {"policy": 12},
        "left_out": {"an answer without text and without calls": 1},
    }
    assert (said["parent"], said["steps"], said["algorithm"]) == (0, 6, "sft")
    assert said["metrics"]["loss"] < said["metrics"]["first_loss"]
    board = EventAccumulator(str(settings.job_dir / "monitor" / "tensorboard" / "version_1"))
    board.Reload()
    assert [event.step for event in board.Scalars("train/loss")] == [1, 2, 3, 4, 5, 6]
    assert not (settings.job_dir / "dataset_run").exists(), "what is done takes no place"

    again = train(settings, rows(), start="base")
    assert (again.version, again.parent) == (2, 0)
    assert equal(weights(settings, 1), weights(settings, 2)), "the same rows from the same start"
    assert train(settings, rows(), start=1).parent == 1


async def test_a_running_explorer_serves_what_was_taught(byte_model: Path, tmp_path: Path) -> None:
    from slipstream.embedded.serving import create_app

    settings = config(
        byte_model,
        tmp_path,
        algorithm={"algorithm_type": "sft", "optimizer": {"lr": 3e-3}},
        buffer={"train_batch_size": 4, "total_epochs": 16},
    )
    explorer = EngineConfig.model_validate(
        {
            **settings.model_dump(),
            "mode": "serve",
            "model": {"model_path": str(byte_model), "max_model_len": 512, "temperature": 0},
            "algorithm": {"algorithm_type": "grpo"},
            "explorer": {"service_status_check_interval": 0.05, "rollout_model": {"dtype": "float32"}},
        }
    )
    async with (
        serving(create_app(explorer)) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client,
    ):

        async def answer() -> str | None:
            said = await client.chat.completions.create(
                model=str(byte_model), messages=[{"role": "user", "content": "Question 3?"}], max_tokens=20
            )
            return said.choices[0].message.content

        assert await answer() != TAUGHT
        train(settings, rows(count=4))

        async def is_taught() -> bool:
            return await answer() == TAUGHT

        await until(is_taught, 30)


@pytest.mark.parametrize(
    ("kind", "lora"), [(Kind.SFT, False), (Kind.PREFERENCE, True), (Kind.KTO, False)], ids=["sft", "dpo-lora", "kto"]
)
def test_kill_9_and_resume_is_the_same_run(byte_model: Path, tmp_path: Path, kind: Kind, lora: bool) -> None:
    sections: dict[str, Any] = {"model": {"lora_configs": [{"lora_rank": 4}]}} if lora else {}
    sections |= {"trainer": {"save_interval": 1}, "buffer": {"train_batch_size": 4, "total_epochs": 2}}
    unbroken = config(byte_model, tmp_path / "unbroken", kind, **dict(sections))
    broken = config(byte_model, tmp_path / "broken", kind, **dict(sections))
    data = rows(kind, 11)
    train(unbroken, data, kind)

    process = start(broken, data, kind)
    wait_for(lambda: list(broken.job_dir.glob("dataset_run/steps/checkpoint-*/.whole")))
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()

    assert checkpoints.latest_version(broken.job_dir) is None
    with pytest.raises(SlipstreamError, match=r"'support' for version 1 is half done: --resume goes on"):
        train(broken, data, kind)
    with pytest.raises(SlipstreamError, match=r"the rows or the settings are others"):
        train(broken, data[1:], kind, resume=True)
    done = train(broken, data, kind, resume=True)

    assert (done.version, done.steps) == (1, 6)
    assert equal(weights(unbroken), weights(broken))
    with pytest.raises(SlipstreamError, match=r"expected a run that was begun, found none"):
        train(broken, data, kind, resume=True)


@pytest.mark.parametrize(("total", "trained"), [(None, 6), (4, 4)])
def test_a_run_that_died_before_or_after_its_version_was_published_is_published_once(
    byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int | None, trained: int
) -> None:
    from slipstream.embedded.dataset_run import EmbeddedRun

    settings = config(byte_model, tmp_path, trainer={"save_interval": 1, "total_steps": total})

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for place, name in ((checkpoints, "publish"), (EmbeddedRun, "end")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, dies)
            with pytest.raises(KeyboardInterrupt):
                train(settings, rows(), resume=name == "end")
        assert (settings.job_dir / "dataset_run" / "run.json").exists()
    published = (settings.job_dir / "global_step_1" / "trained_on.json").read_text()

    assert train(settings, rows(), resume=True).version == 1
    assert steps(settings.job_dir) == [1]
    assert (settings.job_dir / "global_step_1" / "trained_on.json").read_text() == published
    assert (said := json.loads(published))["steps"] == trained
    assert said["metrics"]["loss"] < said["metrics"]["first_loss"], "of the steps before"
    assert not (settings.job_dir / "dataset_run").exists()


def test_a_run_goes_on_from_the_version_that_it_started_from_alone(
    byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(byte_model, tmp_path, trainer={"save_interval": 1, "total_steps": 1})

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    train(settings, rows())
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "publish", dies)
        with pytest.raises(KeyboardInterrupt):
            train(settings, rows())
    [file] = checkpoints.weights_path(settings.job_dir, 1).glob("*.safetensors")
    made = file.stat().st_mtime_ns
    os.utime(file, ns=(made, made + 1_000_000_000))  # trained anew after a rollback
    with pytest.raises(SlipstreamError, match=r"version 1, from which .* version 2 started, is another one now"):
        train(settings, rows(), resume=True)
    os.utime(file, ns=(made, made))
    done = train(settings, rows(), resume=True)
    assert (done.version, done.parent) == (2, 1)


def test_sigterm_ends_it_after_the_step_and_resume_goes_on(byte_model: Path, tmp_path: Path) -> None:
    settings = config(byte_model, tmp_path, buffer={"train_batch_size": 4, "total_epochs": 4})
    process = start(settings, rows(), Kind.SFT)
    wait_for(lambda: list(settings.job_dir.glob("monitor/tensorboard/version_1/*")))
    process.terminate()
    process.join(60)

    assert process.exitcode == 0
    assert checkpoints.latest_version(settings.job_dir) is None
    assert train(settings, rows(), resume=True).steps == 12


def test_experiences_of_earlier_versions_are_discarded_and_the_trainer_goes_on(
    byte_model: Path, tmp_path: Path
) -> None:
    from slipstream.embedded.trainer import train as train_online

    settings = config(byte_model, tmp_path)
    online = config(
        byte_model,
        tmp_path,
        algorithm={"algorithm_type": "grpo"},
        buffer={"train_batch_size": 4, "trainer_input": {"experience_buffer": {"max_read_timeout": 0.1}}},
    )
    store = ExperienceStore(settings.database_url, "experience_buffer")

    def commit(task: str, *versions: int) -> None:
        for run, version in enumerate(versions if len(versions) > 1 else versions * 4):
            ids = np.array([run + 5, 9, 11])
            store.record([Answer(f"{task}-{run}", ids, ids, np.full(3, -11.0), version)])
            store.feedback([f"{task}-{run}"], float(run), task, run)
        store.commit("grpo")

    commit("taken", 0)
    commit("waiting", 0)
    assert len(store.claim(1, 4)) == 4, "by a Trainer that died in step 1"

    done = train(settings, rows())
    commit("late", 0)  # answered by the version before, and committed after
    commit("mixed", 1, 0, 1, 1)
    commit("new", 1)
    train_online(online)
    commit("later", 0)
    commit("newer", 2)
    train_online(online)

    assert (done.version, done.discarded) == (1, 8)
    said = json.loads((settings.job_dir / "global_step_2" / "trained_on.json").read_text())
    assert (said["parent"], said["msg_ids"]) == (1, [f"new-{run}" for run in range(4)])
    assert store.unclaimed() == 0
    store.close()
    engine = create_engine(settings.database_url)
    with engine.connect() as connection:
        taken = dict(connection.execute(text("SELECT train_step, count(*) FROM experience_buffer GROUP BY 1")).all())
    engine.dispose()
    assert taken == {DISCARDED: 20, 2: 4, 3: 4}


def test_pairs_raise_what_is_chosen_above_what_is_rejected(byte_model: Path, tmp_path: Path) -> None:
    for lora in (None, [{"lora_rank": 8}]):
        settings = config(
            byte_model, tmp_path / str(bool(lora)), Kind.PREFERENCE, model={"lora_configs": lora},
            buffer={"train_batch_size": 4, "total_epochs": 4},
        )  # fmt: skip

        metrics = train(settings, rows(Kind.PREFERENCE), Kind.PREFERENCE).metrics

        assert metrics["chosen_log_ratio"] > 1
        assert metrics["rejected_log_ratio"] < -1
        assert metrics["margin"] == pytest.approx(
            0.1 * (metrics["chosen_log_ratio"] - metrics["rejected_log_ratio"]), rel=1e-3
        )


def test_judged_answers_raise_what_is_good(byte_model: Path, tmp_path: Path) -> None:
    settings = config(byte_model, tmp_path, Kind.KTO, buffer={"train_batch_size": 4, "total_epochs": 5})

    done = train(settings, rows(Kind.KTO, 9), Kind.KTO)

    assert done.metrics["margin"] > 0
    assert (done.version, done.steps) == (1, 11), "of 45 rows the last one has no other to be compared with"


def test_label_smoothing_is_that_of_trinity(byte_model: Path, tmp_path: Path) -> None:
    from datasets import Dataset

    from slipstream.embedded.dataset_trainers import TrainedRows, dataset_trainer
    from slipstream.embedded.policy_model import load_policy

    smoothing = 0.2
    settings = config(
        byte_model, tmp_path, Kind.PREFERENCE,
        algorithm={"policy_loss_fn_args": {"label_smoothing": smoothing}},
    )  # fmt: skip
    pair = {"prompt_ids": [5, 6], "chosen_ids": [7, 8], "rejected_ids": [9]}
    trainer: Any = dataset_trainer(
        settings, "dpo", load_policy(byte_model), TrainedRows(Dataset.from_list([pair]), [0], 4, 0), tmp_path, 0
    )
    inputs = trainer.data_collator([trainer.train_dataset[0]])
    inputs["ref_chosen_logps"] -= 4.0
    trainer.model.train()

    loss = float(trainer.compute_loss(trainer.model, inputs).detach())

    margin = trainer._metrics["train"]["rewards/margins"][-1]  # beta times the difference of the log-ratios
    assert margin == pytest.approx(0.4, abs=1e-4)
    expected = (1 - smoothing) * math.log1p(math.exp(-margin)) + smoothing * math.log1p(math.exp(margin))
    assert loss == pytest.approx(expected, rel=1e-4)


def test_weights_that_are_no_numbers_are_not_published(byte_model: Path, tmp_path: Path) -> None:
    settings = config(byte_model, tmp_path, algorithm={"algorithm_type": "sft", "optimizer": {"lr": 1e38}})

    with pytest.raises(SlipstreamError, match=r"the weights are no finite numbers, and no version was published"):
        train(settings, rows())

    assert checkpoints.latest_version(settings.job_dir) is None
    assert not (settings.job_dir / "dataset_run").exists()


def test_what_cannot_be_trained_is_refused_in_words(byte_model: Path, tmp_path: Path) -> None:
    settings = config(byte_model, tmp_path)
    odd = config(byte_model, tmp_path, Kind.KTO, buffer={"train_batch_size": 1})
    quantised = config(byte_model, tmp_path, model={"lora_configs": [{"load_in_4bit": True}]})
    silent = [replace(each, answer={"role": "assistant", "content": " "}) for each in rows()]
    for error, words, attempt in (
        (ConfigError, "expected 'dpo' for a data set of kind preference, found 'sft'", (settings, [], Kind.PREFERENCE)),
        (SlipstreamError, "row 1: expected kind sft, found kto", (settings, rows(Kind.KTO), Kind.SFT)),
        (SlipstreamError, "no row to train on: 12 an answer without text", (settings, silent, Kind.SFT)),
        (ConfigError, "train_batch_size: expected at least 2 for kto, found 1", (odd, rows(Kind.KTO), Kind.KTO)),
        (ConfigError, "load_in_4bit: expected a GPU", (quantised, rows(), Kind.SFT)),
    ):
        with pytest.raises(error, match=words):
            train(*attempt)
        assert not (settings.job_dir / "dataset_run").exists(), "no row is left where no deletion would find it"
    with trainer_lock(settings.job_dir), pytest.raises(TrainerRuns, match="a Trainer runs on this job; stop it first"):
        train(settings, rows())
    assert steps(settings.job_dir) == []
    assert train(settings, rows()).version == 1, "what was refused is no half-done run"
