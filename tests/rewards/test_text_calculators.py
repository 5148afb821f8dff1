from typing import Any

import pytest
from reward_runs import completion, score, shadow, value

from slipstream.errors import ScoringError

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("answer", "parameters", "expected"),
    [
        ("The answer is 42.", {"pattern": r"\d+"}, 1),
        ("The answer is 42.", {"pattern": r"\d+", "match": "full"}, 0),
        ("42", {"pattern": r"\d+", "match": "full"}, 1),
        ("YES", {"pattern": "yes"}, 0),
        ("YES", {"pattern": "yes", "ignore_case": True}, 1),
        ("答案：四十二", {"pattern": "答案[:：]"}, 1),
        ("", {"pattern": r"\d"}, 0),
        (completion(None), {"pattern": r"\d"}, 0),
    ],
)
async def test_regex(answer: Any, parameters: dict[str, Any], expected: float) -> None:
    assert await value(shadow(answer), {"regex": parameters}) == expected


async def test_a_pattern_that_backtracks_without_end_is_given_up() -> None:
    with pytest.raises(ScoringError, match=r"^rewards\.calculators\[0\] \(regex\): took longer than 0\.1 s"):
        await score(shadow("a" * 80 + "b"), {"regex": {"pattern": "(a|aa)+$", "timeout": "100ms"}})


@pytest.mark.parametrize(
    ("answer", "parameters", "expected"),
    [
        ('{"x": 1}', {}, 1),
        ('{"x": "1"}', {}, 0),
        ("{}", {}, 0),
        ("x = 1", {}, 0),
        ("", {}, 0),
        ("[" * 100_000, {}, 0),
        ('{"x": 1, "y": NaN}', {}, 0),
        ('```json\n{"x": 1}\n```', {}, 0),
        ('```json\n{"x": 1}\n```', {"allow_fence": True}, 1),
        ('```\n{"x": 1}\n```\n', {"allow_fence": True}, 1),
        ('{"x": 1}', {"allow_fence": True}, 1),
        ('Here: ```json\n{"x": 1}\n```', {"allow_fence": True}, 0),
    ],
)
async def test_json_schema(answer: str, parameters: dict[str, Any], expected: float) -> None:
    assert await value(shadow(answer), {"json_schema": {"schema": POINT, **parameters}}) == expected


async def test_json_schema_fetches_nothing_from_the_network() -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    with pytest.raises(ScoringError, match=r"^json_schema: .*contains what it refers to"):
        await score(shadow("{}"), {"json_schema": {"schema": schema}})


@pytest.mark.parametrize(
    ("answer", "parameters", "expected"),
    [
        ("12345", {"max": 5}, 1),
        ("123456", {"max": 5}, 0.8),
        ("1234567890", {"max": 5}, 0),
        ("12345678901", {"max": 5}, 0),
        ("123456", {"max": 5, "falloff": 2}, 0.5),
        ("12", {"min": 4}, 0.5),
        ("", {"min": 4}, 0),
        ("", {"max": 4}, 1),
        ("one two  three", {"min": 3, "max": 3, "unit": "words"}, 1),
        ("今天天气 very good", {"min": 6, "max": 6, "unit": "words"}, 1),
        (completion("x", tokens=8), {"max": 10, "unit": "tokens"}, 1),
        (completion("x", tokens=15), {"max": 10, "unit": "tokens"}, 0.5),
    ],
)
async def test_length(answer: Any, parameters: dict[str, Any], expected: float) -> None:
    assert await value(shadow(answer), {"length": parameters}) == pytest.approx(expected)


async def test_length_in_tokens_needs_usage() -> None:
    with pytest.raises(ScoringError, match=r"^length: the answer has no usage\.completion_tokens"):
        await score(shadow({**completion("x"), "usage": None}), {"length": {"max": 5, "unit": "tokens"}})


async def test_a_number_too_large_for_the_schema_is_invalid() -> None:
    schema = {"type": "number", "multipleOf": 0.1}
    assert await value(shadow("1" * 400), {"json_schema": {"schema": schema}}) == 0
