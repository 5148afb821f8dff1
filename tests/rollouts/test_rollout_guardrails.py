"""What a plan may compare by: calculators that take production's answer for the truth are refused, in words."""

from __future__ import annotations

from typing import Any

import pytest
from rollout_plays import plan

from slipstream.errors import RequestError
from slipstream.rewards import RewardsSettings
from slipstream.rollouts.guardrails import check, comparable, lacks_references


def rewards(*calculators: Any) -> RewardsSettings:
    return RewardsSettings.model_validate({"calculators": calculators})


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
