"""What is written for Trinity and what is refused. tests/trinity shows what Trinity itself makes of a file."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipstream_client.tuner.config import AlgorithmConfig, TinkerConfig, TunerModelConfig
from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.function_names import function_named, name_of
from slipstream_client.tuner.functions import JudgeOutput, WorkflowOutput
from slipstream_client.tuner.trinity import write_trinity_config

HERE = Path(__file__).parent
MODEL = TunerModelConfig(model_path="Qwen/Qwen3-0.6B", max_model_len=4096, max_tokens=1024)


async def workflow(task: dict[str, Any], model: Any) -> WorkflowOutput:
    return WorkflowOutput(reward=1.0)


class Judges:
    @staticmethod
    async def kind(task: dict[str, Any], response: Any) -> JudgeOutput:
        return JudgeOutput(reward=1.0)

    async def __call__(self, task: dict[str, Any], response: Any) -> JudgeOutput:
        return JudgeOutput(reward=0.0)


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetConfig:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text('{"question": "1 + 1"}\n')
    return DatasetConfig(path=str(tmp_path / "data"), total_epochs=40)


@pytest.fixture
def write(tmp_path: Path, dataset: DatasetConfig) -> Any:
    def write(**given: Any) -> dict[str, Any]:
        path = tmp_path / "made" / "trinity.yaml"
        arguments = {"workflow_func": workflow, "train_dataset": dataset, "model": MODEL, **given}
        write_trinity_config(path, now=lambda: datetime(2026, 1, 4, 18, 53, 55), **arguments)
        tree: dict[str, Any] = yaml.safe_load(path.read_text())
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        return tree

    return write


def test_what_is_not_said_is_as_in_agentscopes_tuner(
    write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = write()
    assert (tree["mode"], tree["project"], tree["name"]) == ("both", "AgentScope", "Experiment-20260104185355")
    assert tree["checkpoint_root_dir"] == str(tmp_path / "checkpoints")
    assert tree["algorithm"] == {
        "algorithm_type": "multi_step_grpo", "repeat_times": 8, "optimizer": {"lr": 1e-6}
    }  # fmt: skip
    assert tree["buffer"]["batch_size"] == 32
    assert tree["synchronizer"]["sync_style"] == "dynamic_by_explorer"
    assert (tree["trainer"]["save_interval"], tree["explorer"]["eval_interval"]) == (100, 100)
    assert tree["monitor"] == {"monitor_type": "tensorboard"}
    assert tree["explorer"]["rollout_model"]["tool_call_parser"] == "hermes"
    assert tree["model"]["model_path"] == "Qwen/Qwen3-0.6B"  # of the Hub: there is no such folder here
    arguments = tree["buffer"]["explorer_input"]["taskset"]["workflow_args"]
    assert arguments == {"workflow_func": "test_trinity_yaml:workflow", "python_path": [str(HERE)]}
    assert (tree["buffer"]["total_epochs"], tree["explorer"]["max_timeout"]) == (40, 3600)
    taskset = write(seed=3)["buffer"]["explorer_input"]["taskset"]
    assert taskset["data_selector"] == {"selector_type": "shuffle", "seed": 3}


def test_tasks_that_make_no_step_are_refused(write: Any, dataset: DatasetConfig) -> None:
    """Trinity leaves out what is less than a batch: it would end at once, having learnt nothing."""
    with pytest.raises(ValueError, match="train_dataset: 31 tasks in all epochs make no step of 32"):
        write(train_dataset=dataset.model_copy(update={"total_epochs": 31}))
    write(train_dataset=dataset.model_copy(update={"total_epochs": 1, "total_steps": 1}))


def test_a_file_to_start_from_keeps_what_is_not_given(write: Any, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text(
        yaml.safe_dump(
            {
                "project": "theirs",
                "checkpoint_root_dir": "${oc.env:ROOT}",
                "cluster": {"node_num": 2},
                "algorithm": {"algorithm_type": "grpo", "kl_loss_fn": "k3", "repeat_times": 3},
                "explorer": {"rollout_model": {"gpu_memory_utilization": 0.5}},
                "buffer": {"explorer_input": {"tasksets": [{"path": "theirs", "workflow_args": {"their": "own"}}]}},
            }
        )
    )
    tree = write(config_path=str(base), train_dataset=None, model=None, experiment_name="ours")
    assert (tree["project"], tree["name"], tree["cluster"]) == ("theirs", "ours", {"node_num": 2})
    assert tree["checkpoint_root_dir"] == "${oc.env:ROOT}"
    assert tree["algorithm"] == {"algorithm_type": "grpo", "kl_loss_fn": "k3", "repeat_times": 3}
    assert tree["explorer"]["rollout_model"] == {"gpu_memory_utilization": 0.5, "enable_openai_api": True}
    assert tree["explorer"]["max_timeout"] == 3600
    (taskset,) = tree["buffer"]["explorer_input"]["tasksets"]
    assert taskset["workflow_args"]["their"] == "own"
    assert taskset["workflow_args"]["workflow_func"] == "test_trinity_yaml:workflow"

    tree = write(config_path=str(base), algorithm=AlgorithmConfig(group_size=5))
    assert tree["algorithm"]["repeat_times"] == 5
    assert tree["algorithm"]["kl_loss_fn"] == "k3"
    assert "tasksets" not in tree["buffer"]["explorer_input"]  # Trinity refuses both
    assert tree["explorer"]["rollout_model"]["gpu_memory_utilization"] == 0.5
    assert write(config_path=str(base), run_timeout=599.5)["explorer"]["max_timeout"] == 600

    base.write_text(yaml.safe_dump({"explorer": {"max_timeout": 7}}))
    assert write(config_path=str(base), run_timeout=600)["explorer"]["max_timeout"] == 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": None}, "model: missing"),
        ({"train_dataset": None}, "train_dataset: missing"),
        ({"train_dataset": DatasetConfig(path="x", split=None)}, "train_dataset.split: missing"),
        ({"train_dataset": DatasetConfig(path=__file__)}, "train_dataset.path: .* is a file"),
        ({"eval_dataset": DatasetConfig(path="./nowhere")}, "dataset path: .*nowhere"),
        ({"model": MODEL.model_copy(update={"max_tokens": 4096})}, "model.max_tokens: expected less than"),
        ({"model": MODEL.model_copy(update={"tinker_config": TinkerConfig()})}, "model.tinker_config"),
        ({"auxiliary_models": {"judge": MODEL.model_copy(update={"max_tokens": 9999})}}, "'judge'].max_tokens"),
        ({"algorithm": AlgorithmConfig(algorithm_type="sft")}, "algorithm.algorithm_type: sft learns from examples"),
        ({"monitor_type": "paper"}, "monitor_type: expected one of tensorboard"),
        ({"config_path": "nowhere.yaml"}, "config_path: .*nowhere.yaml"),
        ({"workflow_func": lambda task, model: None}, "workflow_func is a lambda"),
        ({"workflow_func": functools.partial(workflow)}, "workflow_func is functools.partial.*without a name"),
        ({"judge_func": Judges()}, "judge_func is .*Judges object.*without a name"),
    ],
)
def test_what_trinity_could_not_run_is_named(write: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write(**given)


def test_adapters_are_refused_since_trinity_answers_workflows_without_them(write: Any, tmp_path: Path) -> None:
    base = tmp_path / "base.yaml"
    base.write_text("model: {lora_configs: [{lora_rank: 16}]}")
    with pytest.raises(ValueError, match=r"config_path: expected a file without model\.lora_configs"):
        write(config_path=str(base))


def test_functions_that_another_process_cannot_find_are_refused() -> None:
    async def inner(task: dict[str, Any], model: Any) -> WorkflowOutput:
        return WorkflowOutput(reward=1.0)

    with pytest.raises(ValueError, match=r"judge_func is '.*inner', a function within a function"):
        name_of(inner, "judge_func")

    @functools.wraps(workflow)
    async def wrapper(task: dict[str, Any], model: Any) -> WorkflowOutput:
        return WorkflowOutput(reward=0.0)

    with pytest.raises(ValueError, match="workflow_func is not what test_trinity_yaml:workflow names"):
        name_of(wrapper, "workflow_func")


def test_a_name_leads_back_to_the_function() -> None:
    for function in (workflow, Judges.kind):
        assert function_named(name_of(function, "workflow_func").name) is function
    assert name_of(Judges.kind, "judge_func").name == "test_trinity_yaml:Judges.kind"
    assert name_of(json.dumps, "judge_func").folder is None  # installed: it is there on any machine
    with pytest.raises(ImportError, match="test_trinity_yaml has no function 'nobody'"):
        function_named("test_trinity_yaml:nobody")
    with pytest.raises(ImportError, match=r"there is no script /nowhere\.py"):
        function_named("/nowhere.py:f")
    with pytest.raises(ValueError, match="not of the form module:function"):
        function_named("workflow")


def test_a_script_that_tunes_when_it_is_imported_is_told_how_to_be_written(tmp_path: Path) -> None:
    """In Trinity's worker it would start another training."""
    script = tmp_path / "careless.py"
    script.write_text(
        "import slipstream_client as slipstream\n"
        "async def workflow(task, model): ...\n"
        "slipstream.tune(workflow_func=workflow)\n"
    )
    with pytest.raises(TunerError, match=r"careless\.py calls tune\(\) when it is imported.*__main__"):
        function_named(f"{script}:workflow")


SCRIPT = """
import sys
import slipstream_client as slipstream
from rewards import judge

async def workflow(task, model): ...

print("arguments", sys.argv[1:])
if "tune" in sys.argv:
    slipstream.tune(
        workflow_func=workflow, judge_func=judge, train_dataset=slipstream.DatasetConfig(path="tasks", total_steps=5),
        model=slipstream.TunerModelConfig(model_path="small", max_model_len=100, max_tokens=10),
    )
if "fail" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "train.jsonl").write_text('{"question": "1 + 1"}\n')
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "my-script.py").write_text(SCRIPT)
    (tmp_path / "code" / "rewards.py").write_text("async def judge(task, response): ...\n")
    return tmp_path


def command(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    slipstream = Path(sys.executable).with_name("slipstream")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLIPSTREAM")}
    return subprocess.run(
        [slipstream, "tune", *words],
        cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_command_writes_the_file_in_place_of_training(project: Path) -> None:
    done = command(project, "code/my-script.py", "--to-trinity", "out/trinity.yaml", "tune", "--lr", "0.1")
    assert done.returncode == 0, done.stderr
    assert "arguments ['tune', '--lr', '0.1']" in done.stdout
    tree = yaml.safe_load((project / "out" / "trinity.yaml").read_text())
    assert tree["buffer"]["explorer_input"]["taskset"]["workflow_args"] == {
        "workflow_func": f"{project}/code/my-script.py:workflow",
        "judge_func": "rewards:judge",
        "python_path": [f"{project}/code"],
    }
    assert not (project / "checkpoints").exists()


def test_the_command_without_the_option_is_the_script(project: Path) -> None:
    done = command(project, "code/my-script.py", "fail", "-n", "3")
    assert (done.returncode, done.stdout) == (3, "arguments ['fail', '-n', '3']\n")


@pytest.mark.slow
def test_the_command_says_when_there_is_nothing_to_write(project: Path) -> None:
    (project / "old.yaml").write_text("mode: both\n")
    done = command(project, "code/my-script.py", "--to-trinity", "old.yaml")
    assert done.returncode == 2
    assert "my-script.py did not call tune(): old.yaml was not written" in done.stderr
    assert (project / "old.yaml").read_text() == "mode: both\n"
    done = command(project, "no.py", "--to-trinity", "old.yaml")
    assert (done.returncode, done.stderr) == (2, "slipstream: there is no script no.py\n")


@pytest.mark.slow
def test_the_command_says_a_mistake_in_a_line_and_shows_the_script_s_own(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = command(project, "code/my-script.py", "tune")
    assert done.returncode == 2
    assert "slipstream: model.model_path: no directory, and no model that can be had" in done.stderr
    assert "Traceback" not in done.stderr
    assert "is a directory" in command(project, "code/my-script.py", "--to-trinity", "code", "tune").stderr
    (project / "own.py").write_text("int('three')\n")
    done = command(project, "own.py")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
