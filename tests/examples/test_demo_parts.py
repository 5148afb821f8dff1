"""The demo's tool, tasks, verifier and chart. The demo as a whole is `make demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import demo_learning
import pytest
from agent import Agent
from calculator import TOOL, calculate, reply_to_user
from learning import History, Plan, Step
from outcome import write
from reward import Score, calculator_used_rightly, mean
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from tasks import held_out_tasks, training_tasks

from slipstream.trajectory import PolicyCall, Run, Task


def called(expression: Any, name: str = "calculator") -> dict[str, Any]:
    arguments = json.dumps({"expression": expression})
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def run_with(message: dict[str, Any], reference: str) -> Run:
    task = Task("t", "s", (), metadata={"reference": reference})
    answer = {"id": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return Run(task, "t.0", 0, (PolicyCall({}, answer, "m"),))


@pytest.mark.parametrize(
    ("expression", "value"),
    [("40 - 8 + 31", "63"), ("12-57", "-45"), ("(2 + 3) * 4", "20"), ("1 / 4", "0.25"), ("0.1 + 0.2", "0.3")],
)
def test_calculator_gives_the_exact_value(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize("expression", ["", "2 +", "1 / 0", "2 ** 9", "abs(1)", "x", "True", "1, 2", "1j", "(" * 300])
def test_calculator_refuses_what_is_no_arithmetic(expression: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its message is for the model's eyes
        calculate(expression)


@pytest.mark.parametrize(
    "call",
    [
        called("12 + 30", name="calc"),
        called(42),
        called("import os"),
        {"function": {"name": "calculator", "arguments": "{"}},
        {"function": {"name": "calculator", "arguments": "[]"}},
        {"function": {"name": "calculator", "arguments": "{}"}},
    ],
)
def test_a_call_that_cannot_be_carried_out_leaves_the_models_text(call: dict[str, Any]) -> None:
    reply = reply_to_user(" 42 ", [call])
    assert (reply.text, reply.calculated) == ("42", False)


@pytest.mark.parametrize(
    ("message", "reward"),
    [
        ({"content": None, "tool_calls": [called("12 + 30")]}, 1.0),
        ({"content": None, "tool_calls": [called("12 - 30")]}, 0.0),
        ({"content": "42"}, 1.0),
        ({"content": "<tool_call>"}, 0.0),
        ({"content": ""}, 0.0),
    ],
)
def test_reward_is_for_the_right_number_and_no_call_alone_earns_it(message: dict[str, Any], reward: float) -> None:
    scored = calculator_used_rightly(run_with(message, "42"))
    assert scored.value == pytest.approx(reward)
    assert set(scored.breakdown) == {"called"}


def test_references_are_what_the_tool_gives_for_the_question() -> None:
    for task in held_out_tasks(50):
        assert calculate(task.question.split(":")[1].strip(" =")) == task.reference


def test_training_and_held_out_tasks_are_apart_and_repeatable() -> None:
    held_out = held_out_tasks(48)
    training = training_tasks(1, 200, held_out)
    assert len(training) == 200
    assert {task.question for task in training}.isdisjoint(task.question for task in held_out)
    assert training_tasks(1, 200, held_out) == training != training_tasks(2, 200, held_out)


async def test_agent_offers_its_tool_and_returns_what_it_calculates() -> None:
    seen: list[tuple[dict[str, Any], str | None]] = []

    async def chat(request: Request) -> JSONResponse:
        seen.append((await request.json(), request.headers.get("x-slipstream-mark")))
        message = {"role": "assistant", "content": None, "tool_calls": [called("12 + 30")]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        return JSONResponse({"id": "m", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    async with serving(Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])) as url:
        agent = Agent(f"{url}/v1", "small")
        reply = await agent.answer("12 + 30 =", {"x-slipstream-mark": "demo"})
        await agent.close()
    assert (reply.text, reply.calculated, agent.calls) == ("42", True, 1)
    body, mark = seen[0]
    assert (body["tools"], body["messages"][-1]["content"], mark) == ([TOOL], "12 + 30 =", "demo")


def test_a_run_leaves_a_picture_and_numbers_that_the_page_of_results_is_made_of(tmp_path: Path) -> None:
    low, high = Score(called=0.3, reward=0.2), Score(called=1.0, reward=0.9)
    history = History(production=low, policy={0: low, 1: high}, steps=[Step(1, mean([low, high]), 20.0)])
    history.counts = {"calls": 10, "runs": 32, "commits": 1, "steps": 1}
    write(Plan(seed=7, steps=1, measure_every=1, held_out=48), history, 60.0, tmp_path)
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")

    (tmp_path / "printed.txt").write_text("what it printed\n")
    page = demo_learning.part(demo_learning.ENGINES["embedded"], [demo_learning.summary_of(tmp_path)]).splitlines()
    assert {"| version 1: reward | 0.90 | 0.90 |", "| version 1: tool called | 1.00 | 1.00 |"} <= {*page}
    assert "- Each seed: 1 steps of GRPO; 10 calls of the agent, 32 runs of the policy, 1 commits." in page
