"""`tune_prompt` against a scripted endpoint: a prompt with the right word gets the right answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai_endpoint import Said, endpoint
from serving import serving

from slipstream_client.tuner.dataset import DatasetConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.functions import JudgeOutput, WorkflowOutput
from slipstream_client.tuner.prompt import PromptTuneConfig, tune_prompt

PROPOSALS = ("Be brief.", "Answer in French.", "Think CAREFULLY, then answer.", "Guess.", "Be kind.", "Sing.")
FIRST = "Answer the question."


class Model:
    """The model that is prompted, and the one that proposes prompts."""

    def __init__(self) -> None:
        self.proposals = iter(PROPOSALS)
        self.read: list[str] = []
        self.prompts: list[str] = []
        self.speechless = False

    def __call__(self, body: dict[str, Any]) -> Said:
        if body["model"] == "proposer":
            if self.speechless:
                raise ValueError("no such model")
            self.read.append(body["messages"][0]["content"])
            return Said(f"```\n{next(self.proposals)}\n```")
        system, question = (message["content"] for message in body["messages"])
        self.prompts.append(system)
        a, b = map(int, re.findall(r"\d+", question))
        return Said(str(a + b if "CAREFULLY" in system else 0))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
async def url(model: Model) -> AsyncIterator[str]:
    async with serving(endpoint(model)) as url:
        yield f"{url}/v1"


@pytest.fixture
def dataset(tmp_path: Path) -> DatasetConfig:
    rows = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(1, 7)]
    (tmp_path / "tasks").mkdir()
    for split in ("train", "test"):
        (tmp_path / "tasks" / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return DatasetConfig(path=str(tmp_path / "tasks"))


def adding(url: str) -> Callable[..., Any]:

    async def workflow(task: dict[str, Any], system_prompt: str) -> WorkflowOutput:
        messages: Any = [{"role": "system", "content": system_prompt}, {"role": "user", "content": task["question"]}]
        http = openai.DefaultAsyncHttpxClient(verify=False, trust_env=False)  # which is quickly made
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=http) as client:
            answer = await client.chat.completions.create(model="task", messages=messages)
        return WorkflowOutput(response=answer.choices[0].message.content)

    return workflow


async def judge(task: dict[str, Any], response: Any) -> JudgeOutput:
    return JudgeOutput(reward=float(response == task["answer"]), metrics={"length": len(response)})


Tune = Callable[..., Awaitable[tuple[str, dict[str, float]]]]
"""Call `tune_prompt` on the dataset, by default with the workflow that adds; other arguments are its configuration."""


@pytest.fixture
def tune(url: str, dataset: DatasetConfig) -> Tune:
    async def tuned(
        workflow: Any = None,
        judge_func: Any = judge,
        eval_dataset: DatasetConfig | None = None,
        **fields: Any,
    ) -> Any:
        config = PromptTuneConfig(lm_model_name="proposer", lm_base_url=url, eval_display_progress=False, **fields)
        return await asyncio.to_thread(
            tune_prompt,
            workflow=workflow or adding(url),
            init_system_prompt=FIRST,
            judge_func=judge_func,
            train_dataset=dataset,
            eval_dataset=eval_dataset,
            config=config,
        )

    return tuned


async def test_the_prompt_with_the_right_word_is_found_and_evaluated(
    model: Model, tune: Tune, dataset: DatasetConfig
) -> None:
    prompt, metrics = await tune(eval_dataset=dataset.model_copy(update={"split": "test"}))
    assert prompt == "Think CAREFULLY, then answer."
    assert metrics == {"valset_improvement": float("inf"), "valset_baseline": 0.0, "valset_score": 1.0}
    assert len(model.read) == len(PROPOSALS)  # what `light` allows
    # The proposer reads what the prompt was, what came of it, and what would have been right.
    assert FIRST in model.read[0]
    assert '"answer": "' in model.read[0]
    assert "Reward: 0.0\nlength: 1" in model.read[0]


@pytest.mark.slow
async def test_the_same_seed_searches_the_same_way(tune: Tune, model: Model) -> None:
    read = []
    for seed in (1, 1, 2):
        model.proposals, model.read = iter(PROPOSALS), []
        await tune(seed=seed)
        read.append(model.read)
    assert read[0] == read[1] != read[2]


async def test_nothing_better_leaves_the_first_prompt(tune: Tune, model: Model, dataset: DatasetConfig) -> None:
    model.proposals = iter(["Sing."] * 6)
    prompt, metrics = await tune(eval_dataset=dataset, compare_performance=False)
    assert prompt == FIRST
    assert metrics == {"valset_score": 0.0}


async def test_plain_functions_and_failing_runs_are_borne(tune: Tune, dataset: DatasetConfig) -> None:
    """A run that fails is no better than the worst, also where all rewards are below 0."""

    def workflow(task: dict[str, Any], system_prompt: str) -> WorkflowOutput:
        if "CAREFULLY" not in system_prompt and task["question"].startswith("1"):
            raise RuntimeError("a tool broke")
        return WorkflowOutput(response=system_prompt)

    def cost(task: dict[str, Any], response: Any) -> JudgeOutput:
        return JudgeOutput(reward=-1.0 if "CAREFULLY" in response else -5.0)

    prompt, metrics = await tune(workflow=workflow, judge_func=cost, eval_dataset=dataset)
    assert "CAREFULLY" in prompt
    assert metrics == {"valset_improvement": 80.0, "valset_baseline": -5.0, "valset_score": -1.0}


async def test_a_workflow_that_always_fails_is_an_error(tune: Tune) -> None:
    async def workflow(task: dict[str, Any], system_prompt: str) -> WorkflowOutput:
        raise KeyError("qustion")

    with pytest.raises(TunerError, match=r"every run of the workflow failed.*qustion"):
        await tune(workflow=workflow)


async def test_a_proposer_that_never_answers_is_an_error(tune: Tune, model: Model) -> None:
    model.speechless = True
    with pytest.raises(TunerError, match=r"lm_model_name: proposer never answered.*no such model"):
        await tune()


def test_wrong_arguments_are_named(dataset: DatasetConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def workflow(task: dict[str, Any], prompt: str) -> WorkflowOutput:
        return WorkflowOutput()

    async def right(task: dict[str, Any], system_prompt: str) -> WorkflowOutput:
        return WorkflowOutput()

    given: dict[str, Any] = {"init_system_prompt": FIRST, "judge_func": judge, "train_dataset": dataset}
    with pytest.raises(ValueError, match="system_prompt"):
        tune_prompt(workflow=workflow, **given)
    monkeypatch.delenv("DASHSCOPE_API_KEY", raising=False)
    with pytest.raises(ValueError, match="lm_api_key: missing, and DASHSCOPE_API_KEY is not set"):
        tune_prompt(workflow=right, **given)
    with pytest.raises(ValueError, match=r"lm_model_name: expected openai/\.\.\. or dashscope/\.\.\., found 'qwen'"):
        tune_prompt(workflow=right, **given, config=PromptTuneConfig(lm_model_name="qwen"))
    with pytest.raises(ValueError, match="optimization_level"):
        PromptTuneConfig(optimization_level="extreme")  # type: ignore[arg-type]
