"""The scenarios' workflows and judges, and a judge that is a language model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from scripted import completion
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from slipstream.agent_training.judging import LLMJudge
from slipstream.agent_training.scenarios import MathAgentTrainer, ToolUseTrainer
from slipstream.errors import ConfigError
from slipstream_client.tuner.functions import check_judge_function, check_workflow_function
from slipstream_client.tuner.model import TunerModel

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"name": "weather", "arguments": {"city": "Rome"}}


def server(answer: dict[str, Any], asked: list[Any]) -> Starlette:
    async def chat(request: Request) -> JSONResponse:
        asked.append(await request.json())
        return JSONResponse(answer)

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


async def test_an_agent_that_calls_tools_is_asked_and_judged() -> None:
    trainer = ToolUseTrainer("grpo", {"base_model": "models/qwen"})
    check_workflow_function(trainer.workflow)
    check_judge_function(trainer.judge)
    function = {"name": "weather", "arguments": json.dumps(CALL["arguments"])}
    answer = completion("m", "")
    answer["choices"][0]["message"]["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
    asked: list[Any] = []
    task = {"question": "Rain in Rome?", "tools": json.dumps([WEATHER]), "tool_calls": [CALL]}
    async with serving(server(answer, asked)) as url:
        model = TunerModel(f"{url}/v1", "scripted", timeout=30)
        output = await trainer.workflow(task, model)
        await model.close()
    judged = await trainer.judge(task, output.response)

    assert asked[0]["tools"] == [WEATHER]
    assert judged.reward == 1
    assert judged.metrics == {"tool_accuracy": 1, "arg_accuracy": 1}
    assert (await trainer.judge(task, [])).reward < judged.reward


@pytest.mark.slow  # SymPy loads in a process of its own
async def test_a_solution_is_judged_by_answer_steps_and_form() -> None:
    trainer = MathAgentTrainer("ppo", {"base_model": "models/qwen"})
    try:
        text = "Step 1: expand\nStep 2: sort\nAnswer: $x = 3$"
        judged = await trainer.judge({"question": "?", "answer": "3"}, text)
        wrong = await trainer.judge({"question": "?", "answer": "4"}, text)
    finally:
        trainer.close()
    assert judged.metrics == {"accuracy": 1, "steps": 2, "format": 1}
    assert judged.reward == pytest.approx((3 - 0.2 + 0.5 + 2) / 5.5)
    assert wrong.reward < judged.reward


def test_pairs_are_a_job_and_no_tuning() -> None:
    trainer = ToolUseTrainer(model_config={"base_model": "models/qwen"})
    with pytest.raises(ConfigError, match=r"algorithm: .* found dpo"):
        trainer.train("tasks.jsonl")
    job = trainer.job()
    assert job.data is not None
    assert job.data.dataset.kind == "preference"
    assert job.overlay["model"] == {"model_path": "models/qwen"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "model_config.base_model: expected a model directory"),
        ({"model_config": {"model": "x"}}, "model_config: expected base_model, lora_rank, found model"),
        ({"model_config": {"base_model": "x"}, "training_config": {"lr": 1}}, "training_config: .* found lr"),
    ],
)
def test_what_is_unknown_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ToolUseTrainer(**fields)


async def test_a_model_judges_from_one_to_five() -> None:
    asked: list[Any] = []
    verdict = completion("m", json.dumps({"relevance": 5, "accuracy": 3}))
    async with serving(server(verdict, asked)) as url:
        judge = LLMJudge("big", f"{url}/v1", {"relevance": "To the point?", "accuracy": "Right?"})
        found = await asyncio.to_thread(judge.evaluate, "How do I read a CSV?", "By pandas.")

    assert found == {"relevance": 5, "accuracy": 3, "total": 4, "reward": 0.75}
    assert "To the point?" in asked[0]["messages"][0]["content"]
    with pytest.raises(ValueError, match="base_url"):
        LLMJudge("big", "nowhere")
