"""Rewards of answers with their parts and words, and those of the scenarios."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.agent_training.configs import AgentRewardConfig
from slipstream.agent_training.reward_model import AgentRewardModel, PlanEvaluator, ToolVerifier
from slipstream.agent_training.scenario_rewards import GameReward, MathReward, RewardFunction, ToolUseReward
from slipstream.errors import ScoringError
from slipstream.rewards.calculator import NoBasis
from slipstream.trajectory import PolicyCall, Run, Task

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        },
    }
    for name in ("search", "book", "pay")
]
RIGHT = (
    '<think>first search</think><tool_call>{"name": "search", "arguments": {"q": "Rome"}}</tool_call>'
    '<tool_result>7</tool_result><tool_call>{"name": "book", "arguments": {"q": "7"}}</tool_call>'
    "<tool_result>ok</tool_result>Booked number 7."
)
TRUTH = {"target_tools": ["search", "book"], "answer": "7", "optimal_steps": 2}


@pytest.mark.parametrize(
    ("response", "truth", "parts", "said"),
    [
        pytest.param(RIGHT, TRUTH, {"task_completion": 1, "tool_accuracy": 1, "efficiency": 1}, "", id="right"),
        pytest.param(
            "<think>it is 7</think>I do not know.",
            TRUTH,
            {"task_completion": 0, "tool_accuracy": 0, "efficiency": 0, "timing_quality": 0},
            "Expected were calls of search, book; made were none",
            id="a thought is no answer",
        ),
        pytest.param(
            RIGHT.replace('"book"', '"pay"'),
            {"target_tools": ["search", "book"]},
            {"task_completion": 0, "tool_accuracy.wrong_tool": -0.3, "timing_quality": 1},
            "A tool was called that is not needed",
            id="another tool",
        ),
        pytest.param(
            RIGHT,
            {
                "tool_calls": [
                    {"name": "search", "arguments": {"q": "Milan"}},
                    {"name": "book", "arguments": {"q": "7"}},
                ]
            },
            {"task_completion": 0, "tool_accuracy.f1": 0.75},
            "The task was not completed",
            id="another argument",
        ),
        pytest.param(
            RIGHT.replace('{"q": "7"}', '{"p": 7}'),
            TRUTH,
            {"tool_accuracy.format_error": -0.1},
            "The arguments of book break its schema",
            id="arguments against the schema",
        ),
        pytest.param("Hello!", {"target_tools": []}, {"tool_accuracy": 1, "timing_quality": 1}, "", id="none is due"),
        pytest.param(RIGHT, {"target_tools": []}, {"timing_quality": 0}, "called, and none was due", id="none was due"),
        pytest.param("<tool_call>broken", TRUTH, {"format_compliance": 0}, "The form of the answer", id="no form"),
    ],
)
def test_what_an_answer_is_worth(response: str, truth: dict[str, Any], parts: dict[str, float], said: str) -> None:
    found = AgentRewardModel(tools=TOOLS).compute_reward("Book Rome", response, truth)

    assert {name: found["breakdown"][name] for name in parts} == pytest.approx(parts)
    assert said in found["feedback"]
    assert bool(found["feedback"]) is bool(said)
    assert 0 <= found["total"] <= 1
    assert (found["total"] == 1) is (not said)


def test_calls_that_were_carried_out_are_those_of_the_trace() -> None:
    trace = [{"tool": "search", "args": {"q": "Rome"}}, {"tool": "book", "args": {"q": "7"}, "timeout": True}]
    model = AgentRewardModel(tools=TOOLS)
    found = model.compute_reward("Book Rome", "Booked number 7.", TRUTH, trace)
    failed = model.compute_reward("q", "", {"target_tools": ["search"]}, [{"tool": "search", "error": "away"}])

    assert found["breakdown"]["tool_accuracy"] == 0.5
    assert found["feedback"].endswith("A step took too long.")
    assert failed["breakdown"]["task_completion"] == 0


def test_form_alone_is_no_basis() -> None:
    model = AgentRewardModel()
    with pytest.raises(NoBasis, match="ground_truth: expected tool_calls"):
        model.compute_reward("q", "a", {})
    with pytest.raises(ScoringError, match=r"ground_truth\.tool_calls: expected a tool call"):
        model.compute_reward("q", "a", {"tool_calls": [{"name": "f", "arguments": "none"}]})


def test_weights_and_clip_are_configured() -> None:
    config = AgentRewardConfig(weights={"task_completion": 1.0}, clip=(0.0, 0.5))
    assert AgentRewardModel(config).compute_reward("q", "it is 7", {"answer": "7"})["total"] == 0.5
    with pytest.raises(ValueError, match=r"weights: expected task_completion.* found beauty"):
        AgentRewardConfig(weights={"beauty": 1.0})


def test_the_verifier_and_the_evaluator_stand_alone() -> None:
    verifier = ToolVerifier(TOOLS)
    assert verifier.verify({"name": "search", "arguments": {"q": "x"}}) == []
    assert verifier.verify({"name": "fly", "arguments": {}}) == ["fly is none of the tools"]
    assert verifier.verify({"name": "search", "arguments": "{"}) == ["the arguments of search are no JSON object"]
    made = [{"name": "search", "arguments": {}}, {"name": "book", "arguments": {}}]
    assert PlanEvaluator().evaluate(["search", "book"], made)["plan_success"] == 1
    assert PlanEvaluator().evaluate(["book", "search"], made)["plan_success"] == 0


@pytest.mark.slow  # SymPy loads in a process of its own
async def test_mathematics() -> None:
    reward = MathReward()
    try:
        for answer, steps, formed, worth in (
            ("x is 1/2", 0, True, 3.5), ("0.5", 4, False, 2.6), ("0.5", 90, True, 1.5), ("2", 4, True, 0.5),
            ("", 0, False, 0),
        ):  # fmt: skip
            found = await reward.score(answer, "0.5", steps, formed)
            assert found.breakdown["worth"] == pytest.approx(worth)
            assert found.value == pytest.approx((worth + 2) / 5.5)
    finally:
        reward.close()


@pytest.mark.parametrize(
    ("made", "succeeded", "worth"),
    [
        ([{"name": "search", "arguments": {"q": "Rome"}}], [True], 2.5),
        ([{"name": "search", "arguments": {"q": "Rome"}}], [False], 1.5),
        ([{"name": "search", "arguments": {"q": "Oslo"}}], None, 1.0),
        ([{"name": "fly", "arguments": {}}], [False], -2.0),
        ([], [], 0.0),
    ],
)
def test_tool_use(made: list[dict[str, Any]], succeeded: list[bool] | None, worth: float) -> None:
    expected = [{"name": "search", "arguments": {"q": "Rome"}}]
    found = ToolUseReward(tools=["search", "book"]).score(expected, made, succeeded)

    assert found.breakdown["worth"] == pytest.approx(worth)
    assert found.value == pytest.approx((worth + 2) / 4.5)


def test_a_game() -> None:
    won = {"team_win": 1.0, "individual_survive": 0.5, "successfully_blame": 1.0, "exposed_penalty": 0.5}
    assert GameReward().score(won).breakdown["worth"] == 12
    assert GameReward({"team_win": 1.0}).score(won).breakdown["worth"] == 3
    with pytest.raises(ValueError, match=r"reward_function: expected team_win.* found luck"):
        GameReward({"luck": 1.0})


def test_a_reward_function_of_one_s_own_is_a_calculator() -> None:
    class Brief(RewardFunction):
        def compute(self, trajectory: Any) -> float:
            return 1 / (1 + len(trajectory["tool_calls"]))

    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
    }
    call = PolicyCall({"messages": [{"role": "user", "content": "go"}]}, {"choices": [{"message": message}]}, "m")
    assert Brief().calculate(Run(Task("t", "s", ()), "g", 0, (call,))).value == 0.5
