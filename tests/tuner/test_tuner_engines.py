"""`tune` on what it is made for: an engine that it starts itself, and a sidecar's facade."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from loops import RunLoop
from serving import until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tuned import LearningExplorer, ask, dataset, one_call, questions, tuned

from slipstream_client import AlgorithmConfig, TunerModelConfig, WorkflowOutput, configure, tune
from slipstream_client.tuner.endpoint import served
from slipstream_client.tuner.errors import TunerError

_HERE = Path(__file__).parent


def several_calls(task: dict[str, Any], model: Any, auxiliary_models: dict[str, Any]) -> WorkflowOutput:
    """Runs of different lengths, whose reward is how much was said."""
    said = ""
    for _ in range(1 + int(task["question"][-1]) % 2):
        said += ask(model, task["question"]).choices[0].message.content or ""
    opinion = ask(auxiliary_models["referee"], said or "nothing", max_tokens=2)
    return WorkflowOutput(reward=min(len(said), 40) / 40, metrics={"asked": float(opinion.usage.completion_tokens > 0)})


@pytest.mark.slow
def test_a_local_engine_learns_leaves_what_is_promised_and_ends_at_ctrl_c(
    folder: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream_client.config._configured", None)
    monkeypatch.delenv("SLIPSTREAM_URL", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (folder / "base.yaml").write_text(yaml.safe_dump({"algorithm": {"optimizer": {"weight_decay": 0.0}}}))
    model = TunerModelConfig(model_path=str(tiny_model), max_model_len=256, max_tokens=6, temperature=0.9)
    arguments: dict[str, Any] = {
        "workflow_func": several_calls,
        "eval_dataset": dataset(folder / "e", questions(2)),
        "model": model,
        "auxiliary_models": {"referee": model},
        "algorithm": AlgorithmConfig(
            group_size=3, batch_size=2, learning_rate=1e-3, save_interval_steps=2, eval_interval_steps=2
        ),
        "config_path": "base.yaml",
        "experiment_name": "experiment",
        "seed": 7,
    }
    first = tune(train_dataset=dataset(folder / "d", questions(4)), **arguments)

    experiment = folder / "checkpoints" / "AgentScope" / "experiment"
    assert first.folder == experiment
    assert [(step["step"], step["version"], step["fed_back"]) for step in first.steps] == [(1, 0, 6), (2, 1, 6)]
    assert [each["version"] for each in first.evaluations] == [0, 2]
    assert all(step["metrics"] == {"asked": 1.0} for step in first.steps)
    assert (experiment / "global_step_1" / "actor" / "huggingface" / "model.safetensors").exists()
    assert (experiment / "global_step_2" / ".full_checkpoint").exists()  # save_interval_steps
    trained = EventAccumulator(str(experiment / "monitor" / "tensorboard")).Reload()
    assert [each.value for each in trained.Scalars("train/experiences")] == [
        9,
        9,
    ]  # three runs of one call, three of two
    rollouts = EventAccumulator(str(experiment / "monitor" / "tensorboard" / "tuner")).Reload()
    assert [each.step for each in rollouts.Scalars("rollout/reward")] == [1, 2]
    assert "trained" in (experiment / "engine.log").read_text()
    explorer, trainer = (yaml.safe_load((experiment / "engine" / f"{name}.yaml").read_text()) for name in _FILES)
    assert explorer["model"] == trainer["model"]
    assert (trainer["model"]["temperature"], trainer["model"]["max_response_tokens"]) == (0.9, 6)
    assert trainer["algorithm"]["optimizer"] == {"weight_decay": 0.0, "lr": 1e-3}
    assert explorer["algorithm"]["algorithm_type"] == "multi_step_grpo"
    assert explorer["explorer"]["rollout_model"]["seed"] == 7
    assert engine_processes(experiment) == []

    # It goes on where it ended, and is stopped amid the step after the next.
    version, stopped = experiment / "latest_state_dict_iteration.txt", threading.Lock()

    def until_version_3(task: dict[str, Any], model: Any) -> WorkflowOutput:
        output = one_call(task, model)
        if version.read_text() == "3" and stopped.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
        return output

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        more = dataset(folder / "d", questions(4), total_steps=9)
        with pytest.raises(KeyboardInterrupt):
            tune(train_dataset=more, **{**arguments, "workflow_func": until_version_3, "auxiliary_models": None})
    finally:
        signal.signal(signal.SIGINT, before)
    assert engine_processes(experiment) == []
    steps = json.loads((experiment / "tuner.json").read_text())["steps"]
    assert steps[:2] == [*first.steps]
    assert [step["version"] for step in steps[2:]] == [2]


_FILES = ("explorer", "trainer")


def engine_processes(experiment: Path) -> list[int]:
    """What runs on the files of this experiment."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        if any(str(experiment) in word for word in process.info["cmdline"] or ()):
            found.append(process.info["pid"])
    return found


@pytest.mark.slow
async def test_a_local_engine_ends_when_its_tuning_is_killed(folder: Path, tiny_model: Path) -> None:
    dataset(folder / "d", questions(8))
    (folder / "model").symlink_to(tiny_model)
    experiment = folder / "checkpoints" / "AgentScope" / "experiment"
    path = os.pathsep.join(map(str, (_HERE, _HERE.parent / "support", *filter(None, sys.path))))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_HERE / "tuning_script.py"),
        "1000",
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )

    def at_work() -> list[int]:
        """Those that have been for a while: the guard hears of a program right after its start."""
        return [pid for pid in engine_processes(experiment) if psutil.Process(pid).cpu_times().user > 0.2]

    await until(lambda: len(at_work()) == 2, 120)
    process.kill()
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    await until(lambda: engine_processes(experiment) == [], 30)


@pytest.mark.slow
def test_a_local_engine_that_does_not_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.config._configured", None)
    monkeypatch.delenv("SLIPSTREAM_URL", raising=False)
    data = dataset(folder / "d", questions(2))
    with pytest.raises(ValueError, match="model: missing; the local engine needs it"):
        tune(workflow_func=one_call, train_dataset=data)
    (folder / "model").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / "model" / name).touch()
    model = TunerModelConfig(model_path="model", max_model_len=64)
    algorithm = AlgorithmConfig(algorithm_type="rloo")
    with pytest.raises(ValueError, match="algorithm_type: a local engine knows multi_step_grpo, grpo, ppo; found 'rl"):
        tune(workflow_func=one_call, train_dataset=data, model=model, algorithm=algorithm)
    (folder / "torch.py").write_text("raise ImportError('no libcudart')")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    with pytest.raises(TunerError, match=r"(?s)the local engine's (explorer|trainer) ended with 2:.*no libcudart"):
        tune(workflow_func=one_call, train_dataset=data, model=model, experiment_name="experiment")
    assert engine_processes(folder / "checkpoints") == []


async def test_a_sidecar_s_facade_is_as_good_as_an_explorer(
    folder: Path, run_loop: RunLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "httpx")
    explorer = LearningExplorer()
    async with run_loop(
        explorer, selection={"sampling": {"rate": 0}}, facade={"api_key": "key", "group_size": 9}
    ) as loop:
        try:
            configure(loop.url, api_key="key")
            data = dataset(folder / "d", questions(4))
            result = await tuned(explorer, explorer_url=None, size=3, train_dataset=data)
            assert [step["version"] for step in result.steps] == [0, 1]
            assert [sorted(map(len, groups.values())) for groups in explorer.trained] == [[3, 3], [3, 3]]
            with_key = loop.url.replace("//", "//trinity:key@") + "/explorer"
            await tuned(explorer, explorer_url=with_key, experiment_name="other", train_dataset=data)
            with pytest.raises(TunerError, match=r"GET http://127\.0\.0\.1:\d+/explorer/v1/models: 401"):
                await tuned(
                    explorer, explorer_url=with_key.replace("key", "no"), experiment_name="no", train_dataset=data
                )
            facade = (await loop.status())["facade"]
        finally:
            configure()
    assert facade["groups"]["delivered"] == 8
    for asked in ("v1/chat/completions", "commit"):
        assert f"POST {loop.url}/explorer/{asked}" in caplog.text
    assert "key@" not in caplog.text


@pytest.mark.parametrize(
    ("base_url", "api_key", "sent"),
    [
        ("http://user:a%40b@127.0.0.1:9/v1/", None, {"authorization": "Basic dXNlcjphQGI="}),
        ("http://127.0.0.1:9/v1", "key", {"authorization": "Bearer key"}),
        ("http://127.0.0.1:9/v1", None, {}),
    ],
)
def test_credentials_of_an_address_go_in_a_header(base_url: str, api_key: str | None, sent: dict[str, str]) -> None:
    upstream = served(TunerModelConfig(model_path="judge", base_url=base_url, api_key=api_key, max_model_len=99))
    assert (upstream.base_url, upstream.headers) == ("http://127.0.0.1:9/v1", sent)
    with pytest.raises(ValueError, match=r"^base_url of judge: Invalid port"):
        served(TunerModelConfig(model_path="judge", base_url="http://user:a@b:port/v1", max_model_len=99))
