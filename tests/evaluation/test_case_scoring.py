"""Held-out calls as calculators see them."""

from __future__ import annotations

from dataclasses import replace

from slipstream.evaluation.cases import AskedCase
from slipstream.evaluation.scoring import from_call, run_of
from slipstream.rewards.calculators.tools import Efficiency
from slipstream.trajectory import Call, PolicyCall, Task

ANSWER = {"choices": [{"message": {"role": "assistant", "content": "42"}}]}


def call(position: int) -> Call:
    return Call("t", position, {"messages": [{"role": "user", "content": f"question {position}"}]}, ANSWER)


TASK = Task("t", "s", (call(0), call(1), call(2)), metadata={"reference": "42"})


def test_calculators_see_that_the_task_went_on_and_nothing_of_how() -> None:
    task = from_call(TASK, 1)
    assert task is not None
    case = AskedCase("call-1", "call-1", "s", {}, call=1)
    run = run_of(1, case, task, PolicyCall(task.calls[0].request, ANSWER, "m"))
    assert run.production == replace(call(1), answer={})
    assert run.task.calls == (replace(call(1), answer={}), replace(call(2), request={}, answer={}))
    assert from_call(TASK, 3) is None


def test_the_calls_before_a_held_out_one_are_steps_of_its_task() -> None:
    task = from_call(replace(TASK, metadata={"steps": 1}), 1)
    assert task is not None
    case = AskedCase("call-1", "call-1", "s", {}, call=1)
    assert Efficiency().calculate(run_of(1, case, task, PolicyCall(task.calls[0].request, ANSWER, "m"))) == 0.5
