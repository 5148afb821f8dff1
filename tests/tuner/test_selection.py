"""`select_model` over scripted endpoints, of which one is right, one cheap and one fast."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
from agentscope.model import ChatResponse, OpenAIChatModel
from agentscope.model._model_usage import ChatUsage
from openai_endpoint import Said, endpoint
from opentelemetry import trace
from serving import serving

from slipstream_client.tuner.config import TunerModelConfig
from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.functions import JudgeOutput, WorkflowOutput
from slipstream_client.tuner.judges import avg_time_judge, avg_token_consumption_judge
from slipstream_client.tuner.model import TunerModel
from slipstream_client.tuner.selection import select_model

TASKS = [{"question": str(n), "answer": str(n * n)} for n in range(4)]


def right(body: dict[str, Any]) -> Said:
    return Said(str(int(body["messages"][-1]["content"]) ** 2), tokens=(100, 50), seconds=2)


def cheap(body: dict[str, Any]) -> Said:
    return Said("0", tokens=(3, 1), seconds=2)


def fast(body: dict[str, Any]) -> Said:
    return Said("1", tokens=(50, 20))


@pytest.fixture
async def models() -> AsyncIterator[dict[str, TunerModelConfig]]:
    async with AsyncExitStack() as stack:
        models = {}
        for answer in (right, cheap, fast):
            url = await stack.enter_async_context(serving(endpoint(answer)))
            name = answer.__name__
            models[name] = TunerModelConfig(model_path=name, max_model_len=100, max_tokens=9, base_url=f"{url}/v1")
        yield models


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetConfig:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in TASKS))
    return DatasetConfig(path=str(tmp_path / "data"))


async def asking(task: dict[str, Any], model: TunerModel) -> WorkflowOutput:
    answer = await model.async_client.chat.completions.create(
        model=model.model_name, messages=[{"role": "user", "content": task["question"]}]
    )
    return WorkflowOutput(response=answer.choices[0].message.content)


def streaming(task: dict[str, Any], model: TunerModel) -> WorkflowOutput:
    """Asks twice, and takes the answers as they come."""
    text = ""
    for _ in range(2):
        messages: Any = [{"role": "user", "content": task["question"]}]
        with model.client.chat.completions.create(model="any", messages=messages, stream=True) as chunks:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return WorkflowOutput(response=text)


async def exact(task: dict[str, Any], response: Any) -> JudgeOutput:
    return JudgeOutput(reward=float(response["response"] == task["answer"]), metrics={"length": 1})


@pytest.mark.slow
async def test_the_model_that_is_right_most_often_is_selected(
    models: dict[str, TunerModelConfig], dataset: DatasetConfig
) -> None:
    candidates = [models["cheap"], models["right"], models["fast"]]
    best, metrics = await select_model(
        workflow_func=asking, judge_func=exact, train_dataset=dataset, candidate_models=candidates, max_threads=4
    )
    assert best is models["right"]
    assert metrics == {"length_avg": 1.0}


@pytest.mark.slow
async def test_the_built_in_judges_find_the_cheapest_and_the_fastest(
    models: dict[str, TunerModelConfig], dataset: DatasetConfig
) -> None:
    candidates = list(models.values())
    best, metrics = await select_model(
        workflow_func=asking, judge_func=avg_token_consumption_judge, train_dataset=dataset, candidate_models=candidates
    )
    assert (best, metrics) == (models["cheap"], {"token_consumed_avg": 4.0})
    best, metrics = await select_model(
        workflow_func=asking, judge_func=avg_time_judge, train_dataset=dataset, candidate_models=candidates
    )
    assert best is models["fast"]
    assert 0 < metrics["avg_time_seconds_avg"] < 2


@pytest.mark.slow
async def test_all_calls_of_a_run_count_streamed_ones_too(
    models: dict[str, TunerModelConfig], dataset: DatasetConfig
) -> None:
    """And runs at the same time do not count each other's."""
    best, metrics = await select_model(
        workflow_func=streaming,
        judge_func=avg_token_consumption_judge,
        train_dataset=dataset,
        candidate_models=[models["fast"], models["cheap"]],
        max_threads=4,
    )
    assert (best, metrics) == (models["cheap"], {"token_consumed_avg": 8.0})


@pytest.mark.slow
async def test_judges_see_what_was_measured(models: dict[str, TunerModelConfig], dataset: DatasetConfig) -> None:
    seen = []

    def judge(_task: dict[str, Any], response: Any) -> JudgeOutput:  # `_task`, as the original's judges have it
        seen.append(response)
        return JudgeOutput(reward=0)

    ticks = iter(range(100))
    await select_model(
        workflow_func=asking,
        judge_func=judge,
        train_dataset=dataset.model_copy(update={"total_steps": 1}),
        candidate_models=[models["fast"], models["cheap"]],
        clock=lambda: float(next(ticks)),
    )
    usage = {"input_tokens": 50, "output_tokens": 20, "total_tokens": 70}
    assert seen[0] == {"response": "1", "metrics": {"execution_time": 1.0, **usage, "usage": usage}}
    assert len(seen) == 2


@pytest.mark.slow
async def test_models_are_compared_on_tasks_that_all_of_them_finished(
    models: dict[str, TunerModelConfig], dataset: DatasetConfig
) -> None:
    """A model that fails where it would be wrong gains nothing by it, and one that always fails is out: with rewards
    below 0, a mean over nothing would be the best."""

    async def workflow(task: dict[str, Any], model: TunerModel) -> WorkflowOutput:
        if model.model_name == "fast" or (model.model_name == "cheap" and task["question"] != "0"):
            raise RuntimeError("no tool")
        return await asking(task, model)

    async def judge(task: dict[str, Any], response: Any) -> JudgeOutput:
        return JudgeOutput(reward=-1 if task["question"] == "0" and response["response"] == "0" else -5)

    for order in (("right", "cheap", "fast"), ("cheap", "fast", "right")):
        best, _ = await select_model(
            workflow_func=workflow,
            judge_func=judge,
            train_dataset=dataset,
            candidate_models=[models[name] for name in order],
        )
        assert best is models[next(name for name in order if name != "fast")]  # equal: the first


@pytest.mark.slow
async def test_models_of_agentscope_are_selected_and_counted_too(
    models: dict[str, TunerModelConfig], dataset: DatasetConfig
) -> None:
    """By what their responses tell. The workflow gets an object of the model's own class."""
    candidates = [
        OpenAIChatModel(
            model_name=name, api_key="none", stream=False, client_kwargs={"base_url": models[name].base_url}
        )
        for name in ("right", "cheap")
    ]

    async def workflow(task: dict[str, Any], model: Any) -> WorkflowOutput:
        assert isinstance(model, OpenAIChatModel)
        response: Any = await model([{"role": "user", "content": task["question"]}])
        return WorkflowOutput(response=response.content[0]["text"])

    best, metrics = await select_model(
        workflow_func=workflow,
        judge_func=avg_token_consumption_judge,
        train_dataset=dataset,
        candidate_models=candidates,
    )
    assert (best, metrics) == (candidates[1], {"token_consumed_avg": 4.0})
    for candidate in candidates:
        await candidate.client.close()


class Streaming:
    """A model of AgentScope's kind that streams: each chunk has the usage so far."""

    def __init__(self, tokens: int) -> None:
        self.model_name = f"{tokens} tokens"
        self._tokens = tokens

    async def __call__(self, messages: Any) -> Any:
        async def chunks() -> AsyncIterator[ChatResponse]:
            for part in (1, self._tokens):
                yield ChatResponse(content=[], usage=ChatUsage(input_tokens=0, output_tokens=part, time=0))

        return chunks()


async def test_the_responses_of_such_a_model_may_stream(dataset: DatasetConfig) -> None:
    async def workflow(task: dict[str, Any], model: Any) -> WorkflowOutput:
        return WorkflowOutput(response=[chunk async for chunk in await model([])])

    candidates = [Streaming(30), Streaming(20)]
    best, metrics = await select_model(
        workflow_func=workflow,
        judge_func=avg_token_consumption_judge,
        train_dataset=dataset,
        candidate_models=candidates,
    )
    assert (best, metrics) == (candidates[1], {"token_consumed_avg": 20.0})


@pytest.mark.slow
async def test_tracing_is_left_alone(models: dict[str, TunerModelConfig], dataset: DatasetConfig) -> None:
    before = trace.get_tracer_provider()
    await select_model(
        workflow_func=asking, judge_func=exact, train_dataset=dataset, candidate_models=[*models.values()]
    )
    assert trace.get_tracer_provider() is before


async def test_what_cannot_be_selected_is_said(models: dict[str, TunerModelConfig], dataset: DatasetConfig) -> None:
    given: dict[str, Any] = {"workflow_func": asking, "judge_func": exact, "train_dataset": dataset}
    with pytest.raises(ValueError, match="candidate_models: expected at least two, found 1"):
        await select_model(**given, candidate_models=[models["fast"]])
    nowhere = models["fast"].model_copy(update={"base_url": None})
    with pytest.raises(ValueError, match=r"candidate_models\[1\]\.base_url: missing"):
        await select_model(**given, candidate_models=[models["fast"], nowhere])
    with pytest.raises(ValueError, match=r"candidate_models\[0\]: expected a TunerModelConfig"):
        await select_model(**given, candidate_models=["gpt", models["fast"]])
    with pytest.raises(ValueError, match="max_threads"):
        await select_model(**given, candidate_models=[*models.values()], max_threads=0)

    async def failing(task: dict[str, Any], model: TunerModel) -> WorkflowOutput:
        raise openai.OpenAIError("no quota")

    with pytest.raises(TunerError, match=r"no model finished a task.*no quota"):
        await select_model(**{**given, "workflow_func": failing}, candidate_models=[*models.values()])


def test_the_judges_say_what_they_miss() -> None:
    for judge, part in ((avg_time_judge, "execution_time"), (avg_token_consumption_judge, "usage")):
        with pytest.raises(ValueError, match=part):
            asyncio.run(judge({}, {"metrics": {"other": 1}}))
        with pytest.raises(ValueError, match="response: expected what select_model"):
            asyncio.run(judge({}, "a text"))
