"""Workflow and judge functions: how they are checked, called and believed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from slipstream_client.tuner import JudgeOutput, WorkflowOutput, check_judge_function, check_workflow_function
from slipstream_client.tuner.functions import run_once


async def workflow(task: Any, model: Any, auxiliary_models: Any = None, logger: Any = None) -> WorkflowOutput:
    return WorkflowOutput(reward=task, response=model, metrics={"tools": 2})


def judge(task: Any, response: Any) -> JudgeOutput:
    return JudgeOutput(reward=task + response, metrics={"exact": 1})


def test_what_the_original_takes_is_taken() -> None:
    check_workflow_function(workflow)
    check_workflow_function(lambda task, model: None)
    check_judge_function(judge)
    check_judge_function(lambda *, response, task, logger, auxiliary_models=None: None)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda task: None, r"missing parameters \['model'\]"),
        (lambda model, question: None, r"missing parameters \['task'\]"),
        (lambda task, model, system_prompt: None, r"unknown parameters \['system_prompt'\]"),
        (lambda task, model, *rest: None, r"\*rest is not allowed"),
        (lambda task, model, **rest: None, r"\*\*rest is not allowed"),
        (lambda task, /, model: None, "'task' is positional-only"),
    ],
)
def test_a_workflow_function_that_cannot_be_called_is_refused(function: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_workflow_function(function)


def test_a_judge_function_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"judge function 'workflow': missing parameters \['response'\]"):
        check_judge_function(workflow)
    with pytest.raises(TypeError, match="expected a function, found 'judge'"):
        check_judge_function("judge")  # type: ignore[arg-type]


async def test_the_judge_has_the_last_word() -> None:
    outcome = await run_once(workflow, judge, task=1, model=2, auxiliary_models={}, logger=None)
    assert (outcome.reward, outcome.metrics, outcome.response) == (3.0, {"tools": 2.0, "exact": 1.0}, 2)


async def test_a_plain_function_does_not_hold_the_loop() -> None:
    def plain(task: Any, model: Any) -> WorkflowOutput:
        return WorkflowOutput(reward=float(threading.current_thread() is threading.main_thread()))

    assert (await run_once(plain, None, task=0, model=0)).reward == 0.0


@pytest.mark.parametrize(
    ("output", "judged", "said"),
    [
        (0.5, None, "workflow function returned builtins.float, expected slipstream_client.WorkflowOutput"),
        (WorkflowOutput(response="x"), None, "WorkflowOutput.reward: expected a number"),
        (WorkflowOutput(response="x"), 1.0, "judge function returned builtins.float"),
        (WorkflowOutput.model_construct(reward=float("nan")), None, "expected a finite number, found nan"),
    ],
)
async def test_a_run_without_a_reward_says_why(output: Any, judged: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        await run_once(
            lambda task, model: output, None if judged is None else lambda task, response: judged, task=0, model=0
        )


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "good"])
def test_a_reward_is_a_finite_number(reward: Any) -> None:
    with pytest.raises(ValueError, match="reward"):
        WorkflowOutput(reward=reward)
    with pytest.raises(ValueError, match="reward"):
        JudgeOutput(reward=reward)
