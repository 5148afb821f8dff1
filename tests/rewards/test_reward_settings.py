from typing import Any

import pytest
from pydantic import ValidationError

from slipstream.rewards import RewardsSettings

JUDGE = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
TWO_JUDGES = [{"judge": JUDGE}, {"judge": {**JUDGE, "component": "other"}}]


@pytest.mark.parametrize(
    ("calculator", "key"),
    [
        ({"regx": {"pattern": "a"}}, "regx"),
        ({"regex": {"pattern": "("}}, "regex.pattern"),
        ({"regex": {}}, "regex.pattern"),
        ({"regex": {"pattern": "a", "match": "begin"}}, "regex.match"),
        ({"regex": {"pattern": "a", "weight": 0}}, "regex.weight"),
        ({"regex": {"pattern": "a", "weight": float("inf")}}, "regex.weight"),
        ({"regex": {"pattern": "a", "wieght": 1}}, "regex.wieght"),
        ({"regex": {"pattern": "a", "component": ""}}, "regex.component"),
        ({"regex": {"pattern": "a", "timeout": "soon"}}, "regex.timeout"),
        ({"regex": {"pattern": "a"}, "agent": {}}, ""),
        ({}, ""),
        ("regex", "regex.pattern"),
        ({"constant": {"value": "many"}}, "constant.value"),
        ({"constant": {"value": float("nan")}}, "constant.value"),
        ({"json_schema": {"schema": {"type": "objct"}}}, "json_schema.schema"),
        ({"json_schema": {}}, "json_schema.schema"),
        ({"length": {}}, "length"),
        ({"length": {"min": 9, "max": 3}}, "length"),
        ({"length": {"max": -1}}, "length.max"),
        ({"length": {"max": 5, "unit": "pages"}}, "length.unit"),
        ({"length": {"max": 5, "falloff": 0}}, "length.falloff"),
        ({"exact_match": {"key": ""}}, "exact_match.key"),
        ({"contains": {"match": "some"}}, "contains.match"),
        ({"math": {"timeout": 0}}, "math.timeout"),
        ({"tool_calls": {"argument_share": 2}}, "tool_calls.argument_share"),
        ({"tool_calls": {"penalties": {"wrong_tool": 0.3}}}, "tool_calls.penalties.wrong_tool"),
        ({"tool_calls": {"penalties": {"slow": -1}}}, "tool_calls.penalties.slow"),
        ({"tool_calls": {"max_latency": 0}}, "tool_calls.max_latency"),
        ({"efficiency": {"key": 3}}, "efficiency.key"),
        ({"timing": {"keys": "a"}}, "timing.keys"),
        ({"format": {"optional": "perhaps"}}, "format.optional"),
        ({"agreement": {"like_from": 1.5}}, "agreement.like_from"),
        ({"agent": {"weights": {}}}, "agent.weights"),
        ({"feedback": {"default": float("inf")}}, "feedback.default"),
        ({"judge": {"model": "m"}}, "judge.base_url"),
        ({"judge": {**JUDGE, "base_url": "ftp://x"}}, "judge.base_url"),
        ({"judge": {**JUDGE, "criteria": {}}}, "judge.criteria"),
        ({"judge": {**JUDGE, "criteria": {"is it good?": "x"}}}, "judge.criteria.is it good?.[key]"),
        ({"judge": {**JUDGE, "attempts": 0}}, "judge.attempts"),
        ({"webhook": {"url": "example"}}, "webhook.url"),
        ({"webhook": {"url": "http://x", "concurrency": 0}}, "webhook.concurrency"),
        ({"python": "json"}, "python.object"),
        ({"python": "no_such_module:f"}, "python.object"),
        ({"python": "json:no_such_name"}, "python.object"),
        ({"python": {"object": "json:dumps", "timeout": -1}}, "python.timeout"),
    ],
)
def test_a_bad_calculator_is_refused_by_its_key(calculator: Any, key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RewardsSettings.model_validate({"calculators": [{"agent": {}}, calculator]})
    assert [".".join(map(str, error["loc"])) for error in refused.value.errors()] == [
        f"calculators.1.{key}".rstrip(".")
    ]


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"clip": [1, 0]}, "clip"),
        ({"clip": [0, 0]}, "clip"),
        ({"clip": [0, float("inf")]}, "clip"),
        ({"clip": [0]}, "clip.1"),
        ({"grace": "tomorrow"}, "grace"),
        ({"calculators": {"agent": {}}}, "calculators"),
        ({"calculators": ["agent", "agent"]}, "calculators"),
        ({"calculators": ["agent", {"constant": {"value": 1, "component": "agent"}}]}, "calculators"),
        ({"calculator": []}, "calculator"),
        ({"calculators": TWO_JUDGES, "judge_calls_per_hour": 1}, "judge_calls_per_hour"),
        ({"judge_calls_per_hour": 0}, "judge_calls_per_hour"),
    ],
)
def test_a_bad_section_is_refused_by_its_key(section: Any, key: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RewardsSettings.model_validate(section)
    assert [".".join(map(str, error["loc"])) for error in refused.value.errors()] == [key]


def test_the_error_of_a_repeated_component_names_it() -> None:
    with pytest.raises(ValidationError, match="more than one agent"):
        RewardsSettings.model_validate({"calculators": ["agent", "agent"]})


def test_a_run_can_be_shown_to_each_judge_within_an_hour() -> None:
    section = {"calculators": TWO_JUDGES, "judge_calls_per_hour": 1}
    with pytest.raises(ValidationError, match="from 2 on, one for each judge that is asked about a run"):
        RewardsSettings.model_validate(section)
    assert RewardsSettings.model_validate({**section, "judge_calls_per_hour": 2}).judges == 2
    assert RewardsSettings.model_validate({"judge_calls_per_hour": 1}).judges == 0


def test_a_bare_name_and_an_empty_value_stand_for_the_defaults() -> None:
    settings = RewardsSettings.model_validate({"calculators": ["agreement", {"agent": None}], "grace": "5m"})
    assert [(spec.name, spec.component, spec.weight) for spec in settings.calculators] == [
        ("agreement", "agreement", 1.0),
        ("agent", "agent", 1.0),
    ]
    assert settings.grace == 300


def test_secrets_do_not_show() -> None:
    settings = RewardsSettings.model_validate(
        {
            "calculators": [
                {"judge": {**JUDGE, "api_key": "sk-hidden"}},
                {"webhook": {"url": "http://x", "headers": {"authorization": "Bearer hidden"}}},
            ]
        }
    )
    assert "hidden" not in repr(settings)
    assert "hidden" not in settings.model_dump_json()
