"""What a plan may compare by: calculators that take production's answer for the truth are refused, in words."""

from __future__ import annotations

from typing import Any

import pytest
from rollout_plays import plan

from slipstream.errors import RequestError
from slipstream.rewards import RewardsSettings
from slipstream.rollouts.guardrails import check, comparable, lacks_references, with_ranges

JUDGE = {"judge": {"base_url": "http://j/v1", "model": "j"}}
OWN = {"webhook": {"url": "http://127.0.0.1:9/", "component": "own"}}


def rewards(*calculators: Any, **fields: Any) -> RewardsSettings:
    return RewardsSettings.model_validate({"calculators": calculators, **fields})


@pytest.mark.parametrize(
    ("calculator", "why"),
    [
        ("agreement", "production always wins"),
        ("tool_calls", "scoring.references: true"),
        ("timing", "scoring.references: true"),
        ("efficiency", "scoring.references: true"),
        ("agent", "scoring.references: true"),
        ({"judge": {"base_url": "http://j/v1", "model": "j", "show_production": True}}, "show_production"),
    ],
)
@pytest.mark.parametrize("fields", [{"objective": "reward"}, {"guardrails": {"reward": {}}}])
def test_what_takes_production_for_the_truth_is_refused(calculator: Any, why: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=why) as refused:
        check(plan(**fields), rewards({"constant": {"value": 1}}, calculator))
    assert refused.value.status == 422
    assert refused.value.param == next(iter(fields)) + (".reward" if "guardrails" in fields else "")
    assert refused.value.code == "takes_production_for_the_truth"


def test_with_references_those_that_have_them_may_compare() -> None:
    of = plan(objective="reward", scoring={"references": True})
    check(of, rewards("tool_calls", "timing", "efficiency", "exact_match"))
    with pytest.raises(RequestError, match="agreement"):
        check(of, rewards("tool_calls", "agreement"))
    found = rewards("tool_calls", "efficiency")
    assert lacks_references(found, {"tool_calls": []})
    assert not lacks_references(found, {"tool_calls": [], "steps": 2})


def test_a_component_of_its_own_may_compare_beside_one_that_may_not() -> None:
    found = rewards("agreement", {"length": {"max": 100, "component": "short"}}, "format")
    check(plan(objective="reward.short", guardrails={"format": {}}), found)
    assert [spec.name for spec in comparable(found, references=False).calculators] == ["length", "format"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"objective": "reward"}, "objective"),
        ({"objective": "reward.tone"}, "objective"),
        ({"guardrails": {"format": {}}}, "guardrails.format"),
    ],
)
def test_a_value_that_no_calculator_gives_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError, match=f"^{param}: expected a value that rewards.calculators give") as refused:
        check(plan(**fields), rewards())
    assert refused.value.param == param


def test_feedback_needs_no_calculator() -> None:
    check(plan(), rewards("agreement"))


@pytest.mark.parametrize(
    ("component", "known"),
    [
        ("exact_match", [0, 1]),
        ("tool_calls", [-1, 1]),
        ("tool_calls.f1", [0, 1]),
        ("tool_calls.timeout", [-1, 0]),
        ("agent", [-1, 1]),
        ("agent.task_completion", [0, 1]),
        ("agent.tool_accuracy.wrong_tool", [-1, 0]),
        ("judge.relevance", [0, 1]),
        ("feedback", [-2, 2]),
    ],
)
def test_a_component_has_the_range_that_its_calculator_says(component: str, known: list[float]) -> None:
    found = rewards("exact_match", "tool_calls", "agent", "feedback", JUDGE, clip=(-2, 2))
    assert with_ranges(plan(objective=f"reward.{component}"), found).ranges == {component: known}


@pytest.mark.parametrize("component", ["own", "own.part", "exact_match.part", "agent.part", "judge.beauty"])
def test_a_component_without_a_known_range_is_refused_until_the_plan_says_one(component: str) -> None:
    found = rewards("exact_match", "agent", JUDGE, OWN)
    with pytest.raises(RequestError, match=f"found {component}, whose calculator does not say them") as refused:
        with_ranges(plan(objective=f"reward.{component}"), found)
    assert (refused.value.status, refused.value.param) == (422, "objective")
    said = {component: [-1, 3]}
    assert with_ranges(plan(objective=f"reward.{component}", ranges=said), found).ranges == said


def test_the_guardrail_of_the_form_has_its_own_range_and_whole_rewards_need_none() -> None:
    found = rewards({"format": {"component": "form"}}, OWN, clip=(-1, 1))
    assert with_ranges(plan(guardrails={"format": {}}), found).ranges == {"form": [0, 1]}
    assert with_ranges(plan(objective="reward", guardrails={"reward": {}}), found).ranges == {}


@pytest.mark.parametrize("ends", [[1, 0], [0, 0], [0], [0, 1, 2], [0, float("inf")], [-1e308, 1e308], ["0", 1]])
def test_a_range_is_two_numbers_that_rise(ends: list[Any]) -> None:
    with pytest.raises(ValueError, match="ranges"):
        plan(ranges={"own": ends})
