"""Training by Trinity-RFT, with small programs in place of `trinity` and `ray`: the end of a run, whatever happens.

What the real Trinity makes of the files is in tests/trinity, and what it learns in tests/trinity_full.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from slipstream.cli.train import commands
from slipstream.datasets import trinity_training
from slipstream.datasets.config import Train, load_data_file
from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.trained_dataset import Outcome, TrainedDataset
from slipstream.datasets.trinity_training import TrainerFiles, train_rows
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.local.rollback import rollback
from slipstream.trinity import side_version
from slipstream.trinity.checkpoint_files import (
    FULL_FLAG,
    RESUME_MARKER,
    VERSION_MARKER,
    marked,
    put_in_place,
    replace_text,
)
from slipstream.trinity.job import TrainerRuns, trainer_lock
from slipstream.trinity.noted_run import RunError

RAY = "import sys; sys.exit(0)"  # `ray status`: one runs, of which nothing is known

# Trains as `plan` says: a list of commands for each start. `to N` saves step N, `fail N` does so after a step that
# raised, `exit C` ends with that code, `stop` sends SIGTERM to what started it and waits.
TRINITY = """
import json, os, pathlib, signal, sys, time, yaml
config = yaml.safe_load(open(sys.argv[3]))
state = pathlib.Path(os.environ["STATE"])
started = len(list(state.glob("config-*")))
(state / f"config-{started}").write_text(json.dumps(config))
job = pathlib.Path(config["checkpoint_root_dir"], config["project"], config["name"])
meta = job / "trainer_meta.json"
(state / f"meta-{started}").write_text(meta.read_text() if meta.exists() else "")
(state / f"cache-{started}").write_text(os.environ["HF_DATASETS_CACHE"])
print("Trinity starts")
for command in (json.loads((state / "plan").read_text())[started]):
    what, _, value = command.partition(" ")
    if what in ("to", "fail"):
        actor = job / f"global_step_{value}" / "actor"
        (actor / "huggingface").mkdir(parents=True)
        (actor / "huggingface" / "config.json").write_text("{}")
        if int(value) == config["trainer"]["total_steps"]:
            (actor / "huggingface" / "model.safetensors").write_text(f"step {value}")
        (actor.parent / ".full_checkpoint").touch()
        (job / "monitor" / "tensorboard" / "trainer").mkdir(parents=True, exist_ok=True)
        meta.write_text(json.dumps({"latest_iteration": int(value)}))
        for marker in ("latest_checkpointed_iteration.txt", "latest_state_dict_iteration.txt"):
            (job / marker).write_text(value)
    if what == "fail":
        print("(Trainer pid=7) ERROR Error in Trainer:\\nCUDA out of memory", flush=True)
    if what == "exit":
        sys.exit(int(value))
    if what == "stop":
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
"""


class Policy:
    """A policy's job and the programs that train it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.job = folder / "checkpoints" / "slipstream" / "policy"
        programs = folder / "programs"
        programs.mkdir()
        for name, program in (("ray", RAY), ("trinity", TRINITY)):
            self._program(programs / name, f"#!{sys.executable}\n{program}")
        # in place of the Python of Trinity's environment: it gets an optimizer that is to start afresh
        self._program(
            programs / "python", f'#!/bin/sh\nshift; printf "%s\\n" "$@" > {folder}/afresh; exit ${{FAILS:-0}}'
        )
        model = folder / "model"
        model.mkdir()
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(trinity_training, "RowCheck", lambda *_: lambda _line: None)
        self.document: dict[str, Any] = {
            "mode": "train", "project": "slipstream", "name": "policy",
            "checkpoint_root_dir": str(folder / "checkpoints"),
            "model": {"model_path": str(model), "max_model_len": 512},
            "algorithm": {"algorithm_type": "grpo", "optimizer": {"lr": 1e-6}},
            "cluster": {"node_num": 1, "gpu_per_node": 1},
            "buffer": {"train_batch_size": 2, "trainer_input": {"experience_buffer": {"storage_type": "sql"}}},
            "trainer": {},
        }  # fmt: skip
        environment = {**os.environ, "STATE": str(folder)}
        environment.pop("RAY_ADDRESS", None)
        training = {**self.document, "algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 2e-5}}}
        self.files = TrainerFiles(training, self.document, environment)

    @staticmethod
    def _program(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def plan(self, *starts: Sequence[str]) -> None:
        (self.folder / "plan").write_text(json.dumps(starts))

    def train(self, data: Sequence[Row] | None = None, *, resume: bool = False, **changes: Any) -> Outcome:
        dataset = replace(TrainedDataset("support", "d1", Kind.SFT), **changes)
        return train_rows(self.files, rows() if data is None else data, dataset, resume=resume)

    def config(self, start: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"config-{start}").read_text())
        return found

    def publish(self, version: int) -> None:
        """As the policy's Trainer does."""
        step = self.folder / "made" / "actor" / "huggingface"
        step.mkdir(parents=True)
        self.job.mkdir(parents=True, exist_ok=True)
        (step / "model.safetensors").write_text(f"version {version}")
        put_in_place(self.job, self.folder / "made", version, resumable=True)

    def markers(self) -> tuple[int | None, int | None]:
        return marked(self.job, RESUME_MARKER), marked(self.job, VERSION_MARKER)

    def trained_on(self, version: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.job / f"global_step_{version}" / "trained_on.json").read_text())
        return found


def rows(count: int = 5) -> list[Row]:
    return [
        Row(
            Kind.SFT,
            [{"role": "user", "content": f"Question {number}?"}],
            {"role": "assistant", "content": f"Answer {number}."},
            Provenance("t", "s", "default", Source.POLICY, labels=("odd",) if number % 2 else ()),
        )
        for number in range(count)
    ]


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Policy:
    return Policy(tmp_path, monkeypatch)


def test_what_trinity_trained_is_the_policys_next_version(policy: Policy) -> None:
    policy.publish(4)
    policy.plan(["to 3"])

    done = policy.train(also=("parcels",))

    assert (done.version, done.parent, done.steps) == (5, 4, 3)
    assert policy.markers() == (5, 5)
    assert (policy.job / "global_step_5" / "actor" / "huggingface" / "model.safetensors").read_text() == "step 3"
    said = policy.trained_on(5)
    assert said["dataset"] == {
        "name": "support", "digest": "d1", "kind": "sft", "also": ["parcels"], "rows": 5, "sources": {"policy": 5},
        "left_out": {},
    }  # fmt: skip
    assert (said["engine"], said["parent"], said["algorithm"], said["steps"]) == ("trinity", 4, "sft", 3)
    config = policy.config()
    assert config["model"]["model_path"] == str(policy.job / "global_step_4" / "actor" / "huggingface")
    assert config["trainer"]["total_steps"] == 3, "five rows, two a step, and the last step is filled up"
    assert json.loads((policy.folder / "afresh").read_text().splitlines()[1])["lr"] == 1e-6, "reinforcement learning's"
    assert json.loads((policy.job / "trainer_meta.json").read_text())["latest_iteration"] == 5
    assert (policy.job / "monitor" / "tensorboard" / "version_5").is_dir()
    assert not (policy.job / "trinity_run").exists(), "what is done takes no place, and the rows are not kept"

    policy.plan([], ["to 3"])
    assert policy.train(start="base").parent == 0
    assert policy.config(1)["model"]["model_path"] == policy.document["model"]["model_path"]


def test_all_passes_over_the_rows_are_in_one_file_in_the_order_of_the_seed(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []

    def launched(document: dict[str, Any], environment: dict[str, str], output: Any) -> int:
        path = Path(document["buffer"]["trainer_input"]["experience_buffer"]["path"], "train.jsonl")
        read.append([json.loads(json.loads(line)["messages"])[0]["content"] for line in path.read_text().splitlines()])
        return 0

    monkeypatch.setattr(trinity_training, "launch", launched)
    policy.document["buffer"]["total_epochs"] = 2
    for seed in (0, 0, 1):
        assert policy.train(seed=seed).version is None
        policy.folder.joinpath("checkpoints/slipstream/policy/trinity_run/run.json").unlink()
    assert read[0] == read[1] != read[2]
    assert sorted(read[0][:5]) == sorted(read[0][5:]) == [f"Question {number}?" for number in range(5)]
    policy.train(task_weights={"odd": 0.0})
    assert set(read[3]) == {"Question 0?", "Question 2?", "Question 4?"}


def test_a_killed_run_goes_on_with_the_row_that_is_next(policy: Policy) -> None:
    policy.plan(["to 1", "exit 1"], ["to 3"])
    with pytest.raises(RunError, match=r"(?s)ended after step 1 of 3; --resume goes on.*Trinity starts"):
        policy.train()
    with pytest.raises(RunError, match="is half done: --resume goes on"):
        policy.train()
    with pytest.raises(RunError, match="is on 'support', expected 'other'"):
        policy.train(name="other", resume=True)
    with pytest.raises(RunError, match="the rows or the settings are others"):
        policy.train(rows(4), resume=True)

    assert policy.train(resume=True).version == 1
    assert json.loads((policy.folder / "meta-1").read_text()) == {
        "latest_iteration": 1,
        "sample_strategy_state": {"current_index": 2},
    }
    assert policy.config(0)["ray_namespace"] == policy.config(1)["ray_namespace"]
    assert (policy.folder / "cache-0").read_text().startswith(str(policy.job)), "a copy of the rows ends with the run"
    with pytest.raises(RunError, match="expected a run that was begun, found none"):
        policy.train(resume=True)


def test_a_signal_stops_it_and_leaves_no_rows_behind(policy: Policy) -> None:
    policy.plan(["to 2", "stop"], ["to 3"])
    assert policy.train() == Outcome(None, 0, 2)
    assert policy.markers() == (None, None)
    assert not (policy.job / "trinity_run" / "rows").exists()
    assert policy.train(resume=True).version == 1


def test_a_step_that_failed_is_not_taken_for_trained(policy: Policy) -> None:
    policy.plan(["to 2", "fail 3"], ["fail 1"], ["to 3"])
    with pytest.raises(RunError, match=r"(?s)training step of Trinity failed; --resume goes on after step 2.*memory"):
        policy.train()
    (policy.job / "trinity_run/job/dataset/latest_checkpointed_iteration.txt").unlink()
    with pytest.raises(RunError, match="goes on after step 0"):
        policy.train(resume=True)  # its first step fails, without a checkpoint before it
    assert policy.train(resume=True).version == 1
    assert policy.markers() == (1, 1)


@pytest.mark.parametrize("dies", ["before the rename", "after the rename", "after the first marker"])
def test_a_kill_amid_the_move_is_found_and_the_rest_is_done(
    policy: Policy, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    """A process that dies does what an exception at the same place does, but for locks, which both give back."""
    policy.publish(1)
    policy.plan(["to 3"])
    with monkeypatch.context() as dying:
        if dies == "before the rename":
            dying.setattr(side_version, "put_in_place", killed)
        else:
            dying.setattr("slipstream.trinity.checkpoint_files.replace_text", killed_at(dies))
        with pytest.raises(Killed):
            policy.train()
    assert policy.markers()[1] == 1, "the Explorer knows nothing of it yet"

    done = policy.train(resume=True)

    assert (done.version, done.parent) == (2, 1)
    assert policy.markers() == (2, 2)
    assert not list(policy.folder.glob("config-1")), "nothing was trained twice"
    assert not (policy.job / "trinity_run").exists()


class Killed(Exception):
    pass


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def killed_at(place: str) -> Callable[[Path, str], None]:
    def write(path: Path, text: str) -> None:
        if place == "after the rename" or path.name == VERSION_MARKER:
            raise Killed
        path.write_text(text)

    return write


def test_a_run_that_another_version_overtook_is_not_published(policy: Policy) -> None:
    policy.plan(["to 1", "exit 1"])
    with pytest.raises(RunError):
        policy.train()
    policy.publish(1)
    with pytest.raises(RunError, match="version 1 was published since the half-done run for version 1 began"):
        policy.train(resume=True)


def test_a_run_whose_start_was_rolled_back_is_not_resumed(policy: Policy) -> None:
    for version in (1, 2):
        policy.publish(version)
        (policy.job / f"global_step_{version}" / FULL_FLAG).touch()
    config = policy.folder / "trainer.yaml"
    config.write_text(json.dumps(policy.document))
    policy.plan(["to 1", "exit 1"], ["to 3"])
    with pytest.raises(RunError, match="ended after step 1"):
        policy.train()

    rollback(1, config)
    with pytest.raises(RunError, match=r"version 2, from which the half-done run for version 3 started, is gone"):
        policy.train(resume=True)
    policy.publish(2)
    with pytest.raises(RunError, match=r"version 2, from which .* is another one now, as after a rollback; delete"):
        policy.train(resume=True)


def test_a_version_is_above_the_one_that_the_explorer_serves_after_a_restart_of_the_trainer(policy: Policy) -> None:
    """An Explorer that serves version 9 takes higher numbers only, and the Trainer has restarted at step 3."""
    for version in (3, 9):
        policy.publish(version)
    put_in_place(policy.job, policy.folder / "made", 4, resumable=False)  # no folder: its marker alone
    policy.plan(["to 1", "exit 1"], ["to 3"], ["to 3"])

    with pytest.raises(RunError):
        policy.train(start=3)
    assert policy.markers()[1] == 4
    replace_text(policy.job / VERSION_MARKER, "5")
    with pytest.raises(RunError, match="version 5 was published since the half-done run for version 10 began"):
        policy.train(start=3, resume=True)
    replace_text(policy.job / VERSION_MARKER, "4")
    done = policy.train(start=3, resume=True)

    assert (done.version, done.parent) == (10, 3)
    assert policy.markers() == (10, 10)


def test_what_cannot_be_trained_is_refused_before_anything_starts(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"dataset.kind: expected sft or preference .* found kto"):
        policy.train(kind=Kind.KTO)
    with pytest.raises(ConfigError, match=r"algorithm.algorithm_type: expected dpo, .* found 'sft'"):
        policy.train(kind=Kind.PREFERENCE)
    with pytest.raises(SlipstreamError, match="no row to train on: the data set has none"):
        policy.train([])
    with trainer_lock(policy.job), pytest.raises(TrainerRuns):
        policy.train()
    policy.publish(1)
    (policy.job / "global_step_1" / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(
        ConfigError, match=r"train.start: .*found version 1 \(latest\).*those that have one: none; or base"
    ):
        policy.train()
    assert not list(policy.folder.glob("config-*"))


def test_what_the_policys_own_trainer_could_not_resume_from_is_refused(policy: Policy) -> None:
    """It would end at each start, and the Explorer serve the version for ever."""
    policy.document["algorithm"] = {}  # Trinity's default is ppo
    policy.document["trainer"] = {"trainer_strategy": "fsdp"}
    policy.document["cluster"] = {"node_num": 2, "gpu_per_node": 4}
    training = {**policy.files.training, "trainer": {}, "cluster": {"node_num": 1, "gpu_per_node": 2}}
    policy.files = replace(policy.files, training=training)
    with pytest.raises(ConfigError) as raised:
        policy.train()
    algorithm, *differing = raised.value.problems
    assert "expected one without a critic in the policy's own Trainer, found ppo" in algorithm
    assert [(problem.split(":")[0], problem.split("; ")[1]) for problem in differing] == [
        ("cluster.node_num", "found 1, and 2 there"),
        ("cluster.gpu_per_node", "found 2, and 4 there"),
        ("trainer.trainer_strategy", "found 'fsdp2', and 'fsdp' there"),
    ]
    assert not policy.job.exists()


def test_an_optimizer_that_cannot_be_reset_publishes_nothing(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    policy.plan(["to 3"])
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(RunError, match="its optimizer cannot be reset"):
        policy.train()
    assert policy.markers() == (None, None)
    monkeypatch.setenv("FAILS", "0")
    assert policy.train(resume=True).version == 1


def test_overlays_before_that_of_the_algorithm_are_the_policys_own(tmp_path: Path) -> None:
    layers = {
        "trainer": {"mode": "train", "algorithm": {"algorithm_type": "grpo", "optimizer": {"lr": 1e-6}}},
        "own": {"algorithm": {"optimizer": {"lr": 4e-5}}},
        "sft": {"algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 2e-5}}},
        "mine": {"algorithm": {"optimizer": {"lr": 1e-4}}},
    }
    paths = {name: tmp_path / f"{name}.yaml" for name in layers}
    for name, layer in layers.items():
        paths[name].write_text(yaml.safe_dump(layer))
    overlays = (paths["own"], paths["sft"], paths["mine"])
    files = TrainerFiles.read(Train(engine="trinity", trainer=paths["trainer"], overlays=overlays), {})
    assert files.training["algorithm"] == {"algorithm_type": "sft", "optimizer": {"lr": 1e-4}}
    assert files.policy["algorithm"] == {"algorithm_type": "grpo", "optimizer": {"lr": 4e-5}}


@pytest.mark.parametrize(
    ("dataset", "named"),
    [
        ("kind: kto, sources: [{policy: {}}]", "train.engine embedded for kind kto"),
        ("sources: [{policy: {}}]", "dataset.format trinity for train.engine trinity; found trl"),
        (
            "format: trinity, sources: [{policy: {}}], coreset: {strategy: loss_topk, size: 8}",
            "dataset.coreset.strategy random for train.engine trinity, .*; found loss_topk",
        ),
    ],
)
def test_what_trinity_does_not_train_on_is_refused_with_its_field(tmp_path: Path, dataset: str, named: str) -> None:
    path = tmp_path / "data.yaml"
    path.write_text(f"dataset: {{name: words, {dataset}}}\ntrain: {{engine: trinity}}")
    with pytest.raises(ConfigError, match=named):
        load_data_file(path)


def test_an_estimate_is_for_the_embedded_engine(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("dataset: {name: a, format: trinity, sources: [{policy: {}}]}\ntrain: {engine: trinity}")
    done = CliRunner().invoke(commands, ["--config", str(path), "--directory", str(tmp_path), "--estimate"])
    assert "train.engine: expected embedded, which alone has estimates; found trinity" in str(done.exception)
