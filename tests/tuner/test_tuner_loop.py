"""The loop, by what an Explorer is told: whole groups, in order, one commit a step."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from serving import serving, until
from starlette.responses import JSONResponse
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tuned import LearningExplorer, ask, dataset, one_call, questions, tuned

from slipstream_client import JudgeOutput, TunerModelConfig, WorkflowOutput
from slipstream_client.tuner.endpoint import Endpoint
from slipstream_client.tuner.errors import TunerError


async def test_each_step_is_whole_groups_in_one_commit(folder: Path) -> None:
    explorer = LearningExplorer()
    result = await tuned(explorer, size=3, train_dataset=dataset(folder / "d", questions(5)))

    assert [step["reward"] for step in result.steps] == [0.5] * 3
    assert [step["version"] for step in result.steps] == [0, 1, 2]
    assert explorer.commits == 3
    assert [len(groups) for groups in explorer.trained] == [2, 2, 1]  # the last tasks are a step too
    names = [name for groups in explorer.trained for name in groups]
    assert len(set(names)) == 5
    assert all(len(name) <= 64 for name in names)
    for groups in explorer.trained:
        assert all(set(runs) == {0, 1, 2} for runs in groups.values())
    assert all(each["group_size"] == 3 for each in explorer.feedbacks)
    asked = [chat["messages"][0]["content"] for chat in explorer.chats]
    assert sorted(asked) == sorted(f"question {number}" for number in range(5) for _ in range(3))


async def test_a_run_s_answers_are_told_in_the_order_of_its_calls(folder: Path) -> None:
    said: dict[str, list[str]] = {}

    async def steps(task: Any, model: Any) -> WorkflowOutput:
        ids = []
        for stream in (False, True, False):
            answer = await model.async_client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": task["question"]}], stream=stream
            )
            ids.append(([chunk.id async for chunk in answer] if stream else [answer.id])[-1])
        said[ids[0]] = ids
        return WorkflowOutput(reward=1.0)

    explorer = LearningExplorer()
    await tuned(explorer, steps, size=4, train_dataset=dataset(folder / "d", questions(2)))

    assert len(explorer.feedbacks) == 8
    for each in explorer.feedbacks:
        assert each["msg_ids"] == said[each["msg_ids"][0]]


async def test_a_run_that_raises_is_dropped_whole(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    runs: list[Any] = []

    def fails_at_times(task: Any, model: Any) -> WorkflowOutput:
        ask(model, task["question"])
        runs.append(task)
        if task["fails"] and len(runs) % 2:
            raise KeyError("no such tool")
        ask(model, task["question"])
        return WorkflowOutput(reward=1.0)

    explorer = LearningExplorer()
    tasks = [{"question": "a", "fails": True}, {"question": "b", "fails": False}]
    result = await tuned(
        explorer, fails_at_times, size=4, batch=2, concurrency=1, train_dataset=dataset(folder / "d", tasks)
    )

    assert (result.steps[0]["runs"], result.steps[0]["dropped"], result.steps[0]["fed_back"]) == (6, 2, 6)
    whole, rest = sorted(explorer.trained[0].values(), key=len, reverse=True)
    assert set(whole) == {0, 1, 2, 3}
    assert set(rest) == {1, 3}
    assert all(len(ids) == 2 for runs_of in (whole, rest) for ids in runs_of.values())
    assert {(each["task_id"], each["group_size"]) for each in explorer.feedbacks} == {
        (name, len(group)) for name, group in explorer.trained[0].items()
    }
    assert "KeyError: 'no such tool'" in caplog.text
    assert "KeyError: 'no such tool'" in (result.folder / "tuner.log").read_text()


async def test_a_group_with_one_run_left_is_not_told(folder: Path) -> None:
    seen: set[str] = set()

    def once(task: Any, model: Any) -> WorkflowOutput:
        ask(model, task["question"])
        if task["question"] == "question 0" and task["question"] in seen:
            raise RuntimeError("out of luck")
        seen.add(task["question"])
        return WorkflowOutput(reward=1.0)

    explorer = LearningExplorer()
    result = await tuned(explorer, once, concurrency=1, train_dataset=dataset(folder / "d", questions(2)))
    assert [len(runs) for runs in explorer.trained[0].values()] == [2]
    assert result.steps[0]["fed_back"] == 2

    single = LearningExplorer()
    seen.clear()
    algorithm = {"algorithm_type": "ppo"}  # takes each run by itself
    await tuned(
        single,
        once,
        concurrency=1,
        algorithm=algorithm,
        experiment_name="single",
        train_dataset=dataset(folder / "d", questions(2)),
    )
    assert sorted(len(runs) for runs in single.trained[0].values()) == [1, 2]


async def test_a_step_without_a_group_is_no_commit(folder: Path) -> None:
    seen: set[str] = set()

    def once(task: Any, model: Any) -> WorkflowOutput:
        if task["question"] in seen:
            raise RuntimeError("out of luck")
        seen.add(task["question"])
        return one_call(task, model)

    explorer = LearningExplorer()
    result = await tuned(explorer, once, concurrency=1, train_dataset=dataset(folder / "d", questions(2)))
    assert (result.steps[0]["runs"], result.steps[0]["fed_back"]) == (2, 0)
    assert (explorer.commits, explorer.feedbacks) == (0, [])


async def test_when_every_run_fails_it_is_said(folder: Path) -> None:
    def broken(task: Any, model: Any) -> WorkflowOutput:
        raise ImportError("no module named tools")

    explorer = LearningExplorer()
    with pytest.raises(
        TunerError, match="each of its 4 runs was dropped; the first: ImportError: no module named tools"
    ):
        await tuned(explorer, broken, train_dataset=dataset(folder / "d", questions(2)))
    assert explorer.commits == 0


async def test_the_judge_gives_the_reward_and_metrics_are_watched(folder: Path) -> None:
    def workflow(task: Any, model: Any) -> WorkflowOutput:
        return WorkflowOutput(response=ask(model).choices[0].message.content, metrics={"calls": 1})

    async def judge(task: Any, response: Any) -> JudgeOutput:
        return JudgeOutput(reward=task["worth"], metrics={"said": float("policy says" in response)})

    tasks = [{"question": "a", "worth": 0.25}, {"question": "b", "worth": 0.75}]
    explorer = LearningExplorer()
    result = await tuned(explorer, workflow, judge_func=judge, train_dataset=dataset(folder / "d", tasks))

    assert sorted(each["reward"] for each in explorer.feedbacks) == [0.25, 0.25, 0.75, 0.75]
    assert (result.steps[0]["reward"], result.steps[0]["metrics"]) == (0.5, {"calls": 1.0, "said": 1.0})
    scalars = EventAccumulator(str(folder / "checkpoints/AgentScope/experiment/monitor/tensorboard/tuner")).Reload()
    assert {"rollout/reward", "rollout/calls", "rollout/said", "rollout/seconds"} <= set(scalars.Tags()["scalars"])
    assert [(each.step, each.value) for each in scalars.Scalars("rollout/reward")] == [(1, 0.5)]


async def test_evaluations_teach_nothing(folder: Path) -> None:
    explorer = LearningExplorer()
    result = await tuned(
        explorer,
        train_dataset=dataset(folder / "d", questions(10)),
        eval_dataset=dataset(folder / "e", [{"question": "held out", "reward": 0.75}] * 3),
        algorithm={"eval_interval_steps": 2},
    )
    assert [(each["step"], each["version"]) for each in result.evaluations] == [(0, 0), (2, 2), (4, 4), (5, 5)]
    assert all((each["reward"], each["runs"]) == (0.75, 3) for each in result.evaluations)
    assert all(each["reward"] == 0.5 for each in explorer.feedbacks)
    scalars = EventAccumulator(str(result.folder / "monitor/tensorboard/tuner")).Reload()
    assert [each.step for each in scalars.Scalars("eval/reward")] == [0, 2, 4, 5]


@pytest.mark.slow
async def test_epochs_follow_each_other_and_a_seed_orders_them(folder: Path) -> None:
    async def asked(name: str, **fields: Any) -> list[str]:
        explorer = LearningExplorer()
        data = dataset(folder / "d", questions(4), total_epochs=2)
        await tuned(explorer, batch=4, concurrency=1, train_dataset=data, experiment_name=name, **fields)
        return [chat["messages"][0]["content"][-1] for chat in explorer.chats[::2]]

    assert await asked("plain") == list("01230123")
    shuffled = await asked("seeded", seed=1)
    assert sorted(shuffled[:4]) == sorted(shuffled[4:]) == list("0123")
    assert shuffled != await asked("other", seed=2)
    assert shuffled == await asked("again", seed=1)


async def test_total_steps_count_instead_of_epochs(folder: Path) -> None:
    explorer = LearningExplorer()
    data = dataset(folder / "d", questions(3), total_epochs=9, total_steps=2)
    result = await tuned(explorer, train_dataset=data)
    assert [step["step"] for step in result.steps] == [1, 2]
    assert [step["runs"] for step in result.steps] == [4, 4]


async def test_no_more_runs_at_once_than_allowed(folder: Path) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def counted(task: Any, model: Any) -> WorkflowOutput:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        output = one_call(task, model)
        with lock:
            running -= 1
        return output

    await tuned(LearningExplorer(), counted, batch=8, concurrency=3, train_dataset=dataset(folder / "d", questions(8)))
    assert 1 < most <= 3


async def test_where_no_version_comes_it_goes_on_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    explorer = LearningExplorer()
    explorer.learns = False
    result = await tuned(explorer, sync_timeout=0.1, train_dataset=dataset(folder / "d", questions(4)))
    assert len(result.steps) == 2
    assert "no version after 0 within 0.1 s" in capsys.readouterr().out


async def test_the_model_s_configuration_reaches_the_engine(folder: Path) -> None:
    def workflow(task: Any, model: Any) -> WorkflowOutput:
        assert model.model_name == "/models/policy"
        ask(model, top_p=0.5, max_completion_tokens=7, extra_body={"chat_template_kwargs": {"documents": []}})
        return one_call(task, model)

    explorer = LearningExplorer()
    model = TunerModelConfig(
        model_path="p", max_model_len=99, temperature=0.7, top_p=0.9, max_tokens=50, enable_thinking=False
    )
    await tuned(explorer, workflow, model=model, concurrency=1, train_dataset=dataset(folder / "d", questions(1)))

    own, plain = explorer.chats[:2]
    assert (plain["model"], plain["top_p"], plain["max_tokens"], plain["temperature"]) == (
        "/models/policy",
        0.9,
        50,
        0.7,
    )
    assert plain["chat_template_kwargs"] == {"enable_thinking": False}
    assert (own["top_p"], own["max_completion_tokens"]) == (0.5, 7)
    assert "max_tokens" not in own
    assert own["chat_template_kwargs"] == {"enable_thinking": False, "documents": []}


async def test_auxiliary_models_are_asked_and_never_trained(folder: Path) -> None:
    referee = LearningExplorer(answer="good")

    def workflow(task: Any, model: Any, auxiliary_models: Any) -> WorkflowOutput:
        return WorkflowOutput(response=ask(model).choices[0].message.content)

    def judge(task: Any, response: Any, auxiliary_models: Any) -> JudgeOutput:
        verdict = ask(auxiliary_models["referee"], response).choices[0].message.content
        return JudgeOutput(reward=float(verdict == "good"))

    explorer = LearningExplorer()
    async with serving(referee.app()) as url:
        models = {
            "referee": TunerModelConfig(
                model_path="referee-1", max_model_len=99, temperature=0.1, base_url=f"{url}/v1", api_key="secret"
            )
        }
        data = dataset(folder / "d", questions(2))
        result = await tuned(explorer, workflow, judge_func=judge, auxiliary_models=models, train_dataset=data)

    assert result.steps[0]["reward"] == 1.0
    assert (referee.chats[0]["model"], referee.chats[0]["temperature"]) == ("referee-1", 0.1)
    assert "max_tokens" not in referee.chats[0]  # only what its configuration says
    assert referee.headers[0]["authorization"] == "Bearer secret"
    assert "secret" not in (result.folder / "tuner.json").read_text()
    assert all(len(each["msg_ids"]) == 1 for each in explorer.feedbacks)


async def test_a_reward_that_is_refused_ends_it_and_the_step_is_run_again(folder: Path) -> None:
    explorer = LearningExplorer()

    async def refusing(request: Any) -> Any:
        return JSONResponse({"error": {"message": "reward: expected at most 1"}}, 422)

    told, explorer.feedback_route = explorer.feedback_route, refusing
    data = dataset(folder / "d", questions(2))
    with pytest.raises(TunerError, match="reward: expected at most 1"):
        await tuned(explorer, train_dataset=data)
    assert explorer.commits == 0

    explorer.feedback_route = told
    await tuned(explorer, train_dataset=data)
    assert len(explorer.chats) == 8
    assert [len(groups) for groups in explorer.trained] == [2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"train_dataset": None}, "train_dataset: missing"),
        ({"monitor_type": "wandb"}, "monitor_type: expected 'tensorboard', found 'wandb'"),
        ({"algorithm": {"algorithm_type": "sft"}}, "algorithm.algorithm_type: sft learns from examples"),
        ({"size": 1}, "algorithm.group_size: multi_step_grpo compares"),
        ({"experiment_name": "../elsewhere"}, "experiment_name: expected a name for a folder"),
        ({"concurrency": 0}, "concurrency: expected above 0"),
        ({"run_timeout": 0}, "run_timeout: expected above 0"),
        ({"config_path": "nowhere.yaml"}, "config_path:"),
        ({"model": {"tinker_config": {}}}, "model.tinker_config: there is no training by Tinker here"),
        ({"model": {"base_url": "http://localhost/v1"}}, "model.base_url, model.api_key: for auxiliary models"),
        ({"auxiliary_models": {"judge": {}}}, r"auxiliary_models\['judge'\].base_url: missing"),
    ],
)
async def test_an_argument_that_makes_no_sense_is_named(folder: Path, fields: dict[str, Any], said: str) -> None:
    def model(given: dict[str, Any]) -> TunerModelConfig:
        return TunerModelConfig(model_path="m", max_model_len=99, **given)

    if "model" in fields:
        fields = {**fields, "model": model(fields["model"])}
    if "auxiliary_models" in fields:
        fields = {**fields, "auxiliary_models": {"judge": model({})}}
    explorer = LearningExplorer()
    with pytest.raises(ValueError, match=said):
        await tuned(explorer, **{"train_dataset": dataset(folder / "d", questions(2)), **fields})
    assert explorer.chats == []


async def test_a_file_of_trinity_s_is_enough(folder: Path) -> None:
    dataset(folder / "d", questions(3))
    (folder / "trinity.yaml").write_text(
        """
        project: maths
        name: from-a-file
        checkpoint_root_dir: elsewhere
        model: {model_path: m, max_model_len: 64, max_response_tokens: 20, temperature: 0.5}
        algorithm: {algorithm_type: grpo, repeat_times: 3, optimizer: {lr: 1.0e-5}}
        buffer:
          batch_size: 3
          total_steps: 2
          explorer_input: {taskset: {path: d, split: train}, eval_tasksets: [{path: d, split: "train[:1]"}]}
        explorer: {eval_interval: 1}
        """
    )
    explorer = LearningExplorer()
    result = await tuned(explorer, experiment_name=None, config_path="trinity.yaml", train_dataset=None)
    assert result.folder == folder / "elsewhere" / "maths" / "from-a-file"
    assert [len(groups) for groups in explorer.trained] == [3, 3]
    assert all(each["group_size"] == 3 for each in explorer.feedbacks)
    assert [each["step"] for each in result.evaluations] == [0, 1, 2]
    assert (explorer.chats[0]["max_tokens"], explorer.chats[0]["temperature"]) == (20, 0.5)


async def test_it_runs_where_a_loop_runs_already(folder: Path) -> None:
    """As in a notebook."""
    from slipstream_client import AlgorithmConfig, tune

    explorer = LearningExplorer()
    data = dataset(folder / "d", questions(2))
    async with serving(explorer.app()) as url:

        def notebook() -> Any:
            async def cell() -> Any:
                return tune(
                    workflow_func=one_call,
                    train_dataset=data,
                    algorithm=AlgorithmConfig(group_size=2, batch_size=2),
                    explorer_url=url,
                )

            return asyncio.run(cell())

        result = await asyncio.to_thread(notebook)
    assert re.fullmatch(r"Experiment-\d{14}", result.folder.name)
    assert result.folder.parent == folder / "checkpoints" / "AgentScope"


async def test_without_any_engine_the_three_ways_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.tuner.endpoint.installed", lambda: False)
    monkeypatch.setattr("slipstream_client.config._configured", None)
    monkeypatch.delenv("SLIPSTREAM_URL", raising=False)
    with pytest.raises(
        TunerError, match=r"explorer_url.*configure\(\) or SLIPSTREAM_URL.*slipstream-sidecar\[embedded\]"
    ):
        await tuned(LearningExplorer(), explorer_url=None, train_dataset=dataset(folder / "d", questions(2)))


async def test_an_address_where_nothing_answers_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.tuner.explorer._FIRST_RETRY_FOR", 0.1)
    data = dataset(folder / "d", questions(2))
    with pytest.raises(TunerError, match=r"explorer_url: GET http://127\.0\.0\.1:9/v1/models: ConnectError"):
        await tuned(LearningExplorer(), explorer_url="http://127.0.0.1:9", train_dataset=data)


@pytest.mark.slow
async def test_a_run_that_takes_too_long_is_dropped_and_asks_no_more(folder: Path) -> None:
    refused: list[Any] = []
    over = threading.Event()

    def slow(task: Any, model: Any) -> WorkflowOutput:
        output = one_call(task, model)
        if task["question"] == "question 0":
            over.wait(60)
            try:
                ask(model)
            except Exception as error:
                refused.append(error)
                raise
        return output

    explorer = LearningExplorer()
    result = await tuned(explorer, slow, run_timeout=4, train_dataset=dataset(folder / "d", questions(2)))
    assert (result.steps[0]["runs"], result.steps[0]["dropped"]) == (2, 2)
    over.set()
    await until(lambda: len(refused) == 2)
    assert len(explorer.chats) == 4


@pytest.mark.slow
async def test_an_engine_that_ends_amid_a_step_ends_the_tuning_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = LearningExplorer()
    explorer.hold.clear()

    def check() -> None:
        if len(explorer.chats) == 4:
            raise TunerError("the engine ended")

    def watched(url: Any, *others: Any) -> Any:
        return contextlib.nullcontext(Endpoint(url, None, {}, check))

    monkeypatch.setattr("slipstream_client.tuner.tuning.endpoint", watched)
    with pytest.raises(TunerError, match="the engine ended"):
        await asyncio.wait_for(tuned(explorer, train_dataset=dataset(folder / "d", questions(2))), 20)
    explorer.hold.set()
