"""Reinforcement learning with rows of a data set in each step: the same rows once, and none that was deleted."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from dataset_rows import dataset, provenance
from tiny_model import save_byte_model
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from slipstream.datasets.erasure import NOTES, deletion, erase
from slipstream.datasets.folder import delete, new_folder
from slipstream.datasets.row import Kind, Row
from slipstream.embedded import checkpoints
from slipstream.embedded.config import EngineConfig
from slipstream.embedded.experiences import Answer, Experience, ExperienceStore
from slipstream.embedded.mix_config import mix_of
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.trinity.checkpoint_files import steps

if TYPE_CHECKING:
    from slipstream.embedded.mixed_rows import MixedRows

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["slipstream.embedded.trainer", "slipstream.embedded.mixed_rows"])
BUFFERS = "buffer.trainer_input.auxiliary_buffers"


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bytes") / "model"
    save_byte_model(directory)
    return directory


def config(folder: Path, model: Path | str = "/model", **changes: Any) -> EngineConfig:
    """A Trainer that takes four experiences and two rows a step."""
    fields: dict[str, Any] = {
        "mode": "train",
        "project": "test",
        "name": "job",
        "checkpoint_root_dir": str(folder),
        "model": {"model_path": str(model), "max_model_len": 512},
        "algorithm": {
            "algorithm_type": "mix",
            "optimizer": {"lr": 1e-3},
            "sample_strategy": "mix",
            "sample_strategy_args": {"expert_data_ratio": 1 / 3} | changes.pop("strategy", {}),
            "policy_loss_fn_args": {"mu": 0.4},
        },
        "buffer": {
            "train_batch_size": 6,
            "trainer_input": {
                "experience_buffer": {"max_read_timeout": 0.1},
                "auxiliary_buffers": {
                    "sft_dataset": {"path": str(folder / "sets" / "support"), **changes.pop("buffer", {})}
                },
            },
        },
        "trainer": {"dtype": "float32", "save_interval": 1, **changes.pop("trainer", {})},
    }
    assert not changes
    return EngineConfig.model_validate(fields)


def make(folder: Path, count: int = 5, kind: Kind = Kind.SFT, replace: bool = False) -> Path:
    """A data set whose rows say their numbers, two rows to a session."""
    with new_folder(folder / "sets", dataset(kind), replace=replace) as made:
        for number in range(count):
            said = Row(
                kind,
                [{"role": "user", "content": f"Question {number}?"}],
                {"role": "assistant", "content": f"Row {number}."},
                provenance(number, held_out_at=number / 10),
                rejected={"role": "assistant", "content": "No."} if kind is Kind.PREFERENCE else None,
            )
            made.add("train", said)
        made.publish({})
    return folder / "sets" / "support"


def commit(settings: EngineConfig, groups: int, start: int = 0) -> None:
    store = ExperienceStore(settings.database_url, "experience_buffer")
    source = np.random.default_rng(start)
    for group in range(start, start + groups):
        prompt = source.integers(10, 250, 6)
        for run in range(4):
            name = f"m{group}-{run}"
            store.record([Answer(name, prompt, source.integers(10, 250, 3), np.full(3, -5.0), 0)])
            store.feedback([name], float(run), f"task-{group}", run)
        store.commit("mix")
    store.close()


def mixed(settings: EngineConfig, held_out: float = 0.0) -> MixedRows:
    from slipstream.embedded.mixed_rows import MixedRows

    mix = mix_of(settings)
    assert mix is not None
    return MixedRows(settings, mix, held_out)


def taken(model: Path, rows: MixedRows, steps: int) -> list[str]:
    """The answers of the next steps."""
    tokenizer, found = AutoTokenizer.from_pretrained(model), []
    for _ in range(steps):
        step = rows.beside(4)
        rows.took(len(step))
        found += [str(tokenizer.decode(answer[:-1])) for _, answer in step]
    return found


def run(settings: EngineConfig) -> None:
    from slipstream.embedded.trainer import train

    train(settings)


def start(settings: EngineConfig) -> BaseProcess:
    process = PROCESSES.Process(target=run, args=(settings,))
    process.start()
    return process


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.01)


def said(settings: EngineConfig, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((settings.job_dir / f"global_step_{version}/trained_on.json").read_text())
    return found


def test_a_batch_is_divided_as_trinity_divides_it(tmp_path: Path) -> None:
    for size, ratio, rows, experiences in ((6, 1 / 3, 2, 4), (32, 0.25, 8, 24), (10, 0.01, 1, 9), (10, 0.0, 0, 10)):
        settings = config(tmp_path, strategy={"expert_data_ratio": ratio})
        mix = mix_of(
            settings.model_copy(update={"buffer": settings.buffer.model_copy(update={"train_batch_size": size})})
        )
        assert mix is not None
        assert (mix.rows, mix.experiences) == (rows, experiences)
        assert mix.rows_beside(experiences) == rows
        assert mix.rows_beside(2 * experiences) == 2 * rows
        assert mix.rows_beside(1) == min(rows, 1)
    assert mix_of(EngineConfig.model_validate({**config(tmp_path).model_dump(), "algorithm": {}})) is None


def test_what_cannot_be_mixed_is_refused_with_its_key(tmp_path: Path) -> None:
    of_dataset = rf"{BUFFERS}\.sft_dataset"
    for words, changes in (
        (
            f"{BUFFERS}: expected the data set 'other', .* found 'sft_dataset'",
            {"strategy": {"sft_dataset_name": "other"}},
        ),
        ("expected a share that leaves an experience in a batch of 6", {"strategy": {"expert_data_ratio": 0.9}}),
        (rf"{of_dataset}\.path: String should have at least 1 character", {"buffer": {"path": ""}}),
        (rf"{of_dataset}\.split: Input should be 'train', found 'held_out'", {"buffer": {"split": "held_out"}}),
        (rf"{of_dataset}\.schema_type: Input should be 'sft', found 'dpo'", {"buffer": {"schema_type": "dpo"}}),
        (rf"{of_dataset}\.storage_type: Input should be 'file', found 'sql'", {"buffer": {"storage_type": "sql"}}),
    ):
        with pytest.raises(ConfigError, match=words):
            mix_of(config(tmp_path, **changes))
    for words, algorithm in (
        ("expert_data_ratio", {"sample_strategy_args": {"expert_data_ratio": 1.0}}),
        ("expert_data_ratio", {"sample_strategy_args": {"expert_data_ratio": -0.1}}),
        ("mu", {"policy_loss_fn_args": {"mu": 1.5}}),
        ("sample_strategy: expected mix for algorithm_type mix, found 'warmup'", {"sample_strategy": "warmup"}),
        ("sft_loss_agg_mode: expected token-mean", {"policy_loss_fn_args": {"loss_agg_mode": "seq-mean-token-mean"}}),
        ("expected another one for algorithm_type grpo", {"algorithm_type": "grpo", "sample_strategy": "mix"}),
    ):
        with pytest.raises(ValueError, match=words):
            EngineConfig.model_validate(
                {**config(tmp_path).model_dump(), "algorithm": {"algorithm_type": "mix", **algorithm}}
            )


@pytest.mark.slow
def test_a_data_set_that_cannot_be_mixed_in_is_refused_in_words(byte_model: Path, tmp_path: Path) -> None:
    settings = config(tmp_path, byte_model)
    with pytest.raises(
        ConfigError, match=rf"{BUFFERS}\.sft_dataset\.path: expected the folder of a data set, found none"
    ):
        mixed(settings)
    assert not (tmp_path / "sets").exists(), "a wrong path makes no folder"
    make(tmp_path, 0)
    with pytest.raises(SlipstreamError, match="no row to train on: the data set has none"):
        mixed(settings)
    delete(tmp_path / "sets" / "support")
    make(tmp_path, kind=Kind.PREFERENCE)
    with pytest.raises(
        ConfigError, match=rf"{BUFFERS}\.sft_dataset\.path: expected a data set of kind sft, found kind pref"
    ):
        mixed(settings)
    assert not (settings.job_dir / "mixed_rows").exists(), "no copy of the rows stays"


@pytest.mark.slow
def test_rows_come_again_and_again_in_the_order_that_is_asked_for(byte_model: Path, tmp_path: Path) -> None:
    make(tmp_path)
    every = [f"Row {number}." for number in range(5)]
    in_order, shuffled = (
        taken(byte_model, mixed(config(tmp_path, byte_model, buffer={"data_selector": {"selector_type": how}})), 5)
        for how in ("sequential", "shuffle")
    )
    assert in_order == every * 2
    assert sorted(shuffled[:5]) == sorted(shuffled[5:]) == every
    assert shuffled[:5] not in (every, shuffled[5:])
    assert taken(byte_model, mixed(config(tmp_path, byte_model), held_out=0.3), 1) == ["Row 3.", "Row 4."], (
        "others are held out"
    )


@pytest.mark.slow
def test_what_is_deleted_is_not_taken_any_more(byte_model: Path, tmp_path: Path) -> None:
    where = make(tmp_path).parent
    rows = mixed(config(tmp_path, byte_model))
    assert taken(byte_model, rows, 1) == ["Row 0.", "Row 1."]

    erase(where, deletion("session_id", "acme/session-1", time.time()))
    assert taken(byte_model, rows, 2) == ["Row 4.", "Row 0.", "Row 1.", "Row 4."], "rows 2 and 3 were of that session"
    noted = deletion("session_id", "acme/session-0", time.time())
    with (where / NOTES).open("a") as notes:
        notes.write(json.dumps(asdict(noted)) + "\n")
    assert taken(byte_model, rows, 1) == ["Row 4."] * 2, "what is only noted is deleted before the step"
    make(tmp_path, 10, replace=True)
    assert taken(byte_model, rows, 1) == ["Row 6.", "Row 7."], "of one that takes its place, without what was deleted"
    delete(where / "support")
    with pytest.raises(ConfigError, match=r"sft_dataset\.path: expected the folder of a data set, found none"):
        rows.beside(4)


@pytest.mark.slow
def test_the_gradient_is_that_of_trinitys_mixed_loss(byte_model: Path, tmp_path: Path) -> None:
    from slipstream.embedded.learning import Learner, MixedMetrics

    model = AutoModelForCausalLM.from_pretrained(byte_model, dtype=torch.float32).eval()

    def logps(prompt: Sequence[int], answer: Sequence[int]) -> torch.Tensor:
        logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
        return -functional.cross_entropy(logits, torch.tensor(answer), reduction="none")

    shared = list(range(40, 80))
    taught = [([*shared, 1], [7, 8, 9]), ([*shared, 1], [7, 3]), ([5, 6], [11])]
    sampled = [(shared, [7, 30, 11], 1.3), ([8, 9], [100, 4], -0.4), ([8, 9], [4], 0.0)]
    policy = -sum(advantage * logps(prompt, answer).sum() for prompt, answer, advantage in sampled) / 6
    supervised = -sum(logps(prompt, answer).sum() for prompt, answer in taught) / 6
    (0.6 * policy + 0.4 * supervised).backward()
    norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in model.parameters()))

    settings = config(tmp_path, byte_model)
    batch = [
        Experience(
            0, "m", "t", 0, 0.0, advantage, np.array(prompt, np.int32), np.array(answer, np.int32),
            logps(prompt, answer).detach().numpy(), 0,
        )
        for prompt, answer, advantage in sampled
    ]  # fmt: skip
    rows = [(np.array(prompt, np.int32), np.array(answer, np.int32)) for prompt, answer in taught]
    for given, expected in ((rows, norm), ([], None)):
        measured = Learner(settings, byte_model, tmp_path).accumulate(batch, given)
        if expected is None:
            assert not isinstance(measured, MixedMetrics)
            continue
        assert isinstance(measured, MixedMetrics)
        assert measured.grad_norm == pytest.approx(expected, rel=1e-3)
        assert measured.policy_loss == pytest.approx(-(3 * 1.3 - 2 * 0.4) / 6, rel=1e-3), "at a ratio of 1"
        assert measured.sft_loss == pytest.approx(float(supervised.detach()), rel=1e-3)
        assert measured.loss == pytest.approx(0.6 * measured.policy_loss + 0.4 * measured.sft_loss)
        assert (measured.rows, measured.row_tokens, measured.tokens) == (3, 6, 6)


@pytest.mark.slow
def test_a_version_names_the_data_set_and_learns_from_both(byte_model: Path, tmp_path: Path) -> None:
    path = make(tmp_path)
    settings = config(tmp_path, byte_model)
    commit(settings, 12)
    run(settings)

    manifest = json.loads((path / "manifest.json").read_text())
    assert sorted(steps(settings.job_dir)) == list(range(1, 13))
    for version in (1, 12):
        on = said(settings, version)
        assert on["dataset"] == {
            "name": "support", "digest": manifest["digest"], "kind": "sft",
            "rows": 2, "taken": 2 * version, "left_out": {},
        }  # fmt: skip
        assert (on["parent"], on["experiences"]) == (version - 1, 4)
    first, last = (said(settings, version)["metrics"] for version in (1, 12))
    assert last["sft_loss"] < first["sft_loss"] - 0.5
    assert last["rows"] == 2


@pytest.mark.slow
def test_kill_9_takes_the_same_rows_and_ends_with_the_same_weights(byte_model: Path, tmp_path: Path) -> None:
    unbroken, broken = (config(tmp_path / name, byte_model) for name in ("unbroken", "broken"))
    for settings in (unbroken, broken):
        make(Path(settings.checkpoint_root_dir))
        commit(settings, 8)
    run(unbroken)

    for version in (2, 5):
        process = start(broken)
        wait_for(lambda version=version: (checkpoints.latest_version(broken.job_dir) or 0) >= version)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    run(broken)

    for version in range(1, 9):
        one, other = (said(settings, version) for settings in (unbroken, broken))
        assert one["dataset"]["taken"] == other["dataset"]["taken"] == 2 * version
        assert one["metrics"]["sft_loss"] == other["metrics"]["sft_loss"]
        weights = [checkpoints.load_weights(settings.job_dir, version) for settings in (unbroken, broken)]
        assert all(tensor.equal(weights[1][name]) for name, tensor in weights[0].items())


@pytest.mark.slow
def test_a_batch_that_fails_takes_no_rows(byte_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from slipstream.embedded.learning import Learner
    from slipstream.embedded.trainer import Trainer

    make(tmp_path)
    settings = config(tmp_path, byte_model)
    commit(settings, 2)
    accumulate, given = Learner.accumulate, []

    def fails_at_first(self: Learner, batch: Sequence[Experience], rows: Any) -> Any:
        given.append([answer.tolist() for _, answer in rows])
        if len(given) <= 3:
            raise ValueError("of the batch")
        return accumulate(self, batch, rows)

    monkeypatch.setattr(Learner, "accumulate", fails_at_first)
    Trainer(settings, threading.Event()).run()

    assert given == [given[0]] * 4
    assert said(settings, 1)["dataset"]["taken"] == 2


@pytest.mark.slow
def test_the_place_outlives_a_version_of_another_training(tmp_path: Path) -> None:
    from slipstream.embedded.mixed_rows import taken_by

    def says(version: int, **fields: Any) -> None:
        step = tmp_path / f"global_step_{version}"
        step.mkdir()
        (step / "trained_on.json").write_text(json.dumps(fields))

    says(3, parent=2, dataset={"name": "support", "taken": 6})
    says(4, parent=3, dataset={"name": "other", "rows": 12})
    says(5, parent=4)
    says(6, parent=6)
    assert [taken_by(tmp_path, version) for version in (3, 4, 5, 6, 7, 0)] == [6, 6, 6, 0, 0, 0]
