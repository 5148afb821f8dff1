from typing import Any

import pytest
from reward_runs import completion, replay, score, shadow, value

from slipstream.errors import ScoringError


@pytest.mark.parametrize(
    ("answer", "reference", "parameters", "expected"),
    [
        ("Paris", "Paris", {}, 1),
        (" PARIS\n", "paris", {}, 1),
        ("PARIS", "paris", {"ignore_case": False}, 0),
        ("Paris.", "Paris", {}, 0),
        ("Paris.", "Paris", {"ignore_punctuation": True}, 1),
        ("巴黎。", "巴黎", {"ignore_punctuation": True}, 1),
        ("ＡＢＣ１２３", "abc123", {}, 1),
        ("今天 天气", "今天天气", {}, 0),
        ("今天 天气", "今天天气", {"ignore_space": True}, 1),
        ("42", 42, {}, 1),
        ("4", ["four", "4"], {}, 1),
        ("5", ["four", "4"], {}, 0),
        ("", "x", {}, 0),
        ("10²", 102, {}, 0),
        ("10²", "10^2", {}, 1),
        ("x²", "x2", {}, 1),
        ("−4", -4, {}, 1),
        ("–4", "-4", {}, 1),
    ],
)
async def test_exact_match(answer: str, reference: Any, parameters: dict[str, Any], expected: float) -> None:
    assert await value(shadow(answer, metadata={"reference": reference}), {"exact_match": parameters}) == expected


@pytest.mark.parametrize(
    ("answer", "reference", "parameters", "expected"),
    [
        ("The answer is 4.", 4, {}, 1),
        ("The answer is 14.", 4, {}, 0),
        ("The answer is 14.", 4, {"whole_words": False}, 1),
        ("It is 4.5", 4, {}, 0),
        ("It is 3.4", 4, {}, 0),
        ("It is -4", 4, {}, 0),
        ("It is -4", -4, {}, 1),
        ("Between 3-4", 4, {}, 1),
        ("答案是4。", 4, {}, 1),
        ("他住在北京市", "北京", {}, 1),
        ("他住在上海市", "北京", {}, 0),
        ("A category", "cat", {}, 0),
        ("A cat.", "CAT", {}, 1),
        ("a.b", "a*b", {}, 0),
        ("x  y", "x y", {}, 1),
        ("xy", "x y", {"ignore_space": True}, 1),
        ("red and blue", ["red", "green"], {}, 1),
        ("red and blue", ["red", "green"], {"match": "all"}, 0.5),
        ("red and blue", ["red", "blue"], {"match": "all"}, 1),
        ("", "x", {}, 0),
        ("10² is 100", 102, {}, 0),
        ("4²=16", 42, {}, 0),
        ("4²=16", 16, {}, 1),
        ("4²=16", 4, {}, 0),
        ("10⁻³ m", 3, {}, 0),
        ("2½ cups", 21, {}, 0),
        ("½ a cup", "1/2", {}, 1),
        ("25 m²", "25 m2", {}, 1),
        ("The answer is −4.", -4, {}, 1),
        ("The answer is −4.", 4, {}, 0),
        ("The answer is –4.", -4, {}, 1),
        ("The answer is –4.", 4, {}, 0),
        ("Between 3–4", 4, {}, 1),
        ("Paris – 4 days", 4, {}, 1),
        ("10-4=6", -4, {}, 0),
        ("10-4=6", 4, {}, 1),
        ("x = -4", -4, {}, 1),
        ("It is 3/4", 4, {}, 0),
        ("It is 3/4", 3, {}, 0),
        ("It is 3/4", "3/4", {}, 1),
        ("It is 13/4", "3/4", {}, 0),
        ("At 4:30", 4, {}, 0),
        (r"$90^\circ$", 90, {}, 1),
        (r"$45^{\circ}$", 45, {}, 1),
        ("$4^2$", 4, {}, 0),
        ("2024/05/01", 2024, {}, 1),
        ("2024/05/01", "01", {}, 1),
        ("2024/05/01", "2024/05", {}, 1),
        ("10:30:00", "10:30", {}, 1),
        ("127.0.0.1:8080", 8080, {}, 1),
        ("A ratio of 16:9", 16, {}, 1),
        ("Answer:4/5", 4, {}, 0),
        ("It is -4/5", -4, {}, 0),
        ("It is 0.5/2", 0.5, {}, 0),
        ("10/10", 10, {}, 0),
        ("3/4-4", 4, {}, 1),
        ("At 3:04", "04", {}, 0),
        ("Answer:4", 4, {}, 1),
        ("It is .4", 4, {}, 0),
        ("Room No.4", 4, {}, 1),
        ("So it is...4", 4, {}, 1),
        ("It is 1,000.", 1000, {}, 1),
        ("It is 1000.", "1,000", {}, 1),
        ("It is 1,000,000.5", 1000000.5, {}, 1),
        ("It is 1,000,00", 1000, {}, 0),
        ("It is 21,000", 1000, {}, 0),
        ("It is 3,5", 3, {}, 0),
    ],
)
async def test_contains(answer: str, reference: Any, parameters: dict[str, Any], expected: float) -> None:
    assert await value(shadow(answer, metadata={"reference": reference}), {"contains": parameters}) == expected


async def test_the_key_of_the_reference_is_configurable() -> None:
    run = shadow("a", metadata={"gold": "a", "reference": "b"})
    assert await value(run, {"exact_match": {"key": "gold"}}) == 1


@pytest.mark.parametrize("calculator", ["exact_match", "contains", "math"])
@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, r"the task has no metadata\.reference"),
        ({"reference": ""}, r"the task has no metadata\.reference"),
        ({"reference": []}, r"the task has no metadata\.reference"),
        ({"reference": {"a": 1}}, r"metadata\.reference is expected to be a text, a number, or a list"),
        ({"reference": [None]}, r"metadata\.reference is expected to be a text, a number, or a list"),
    ],
)
async def test_a_reference_that_is_missing_or_unusable_fails_the_scoring(
    calculator: str, metadata: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ScoringError, match=f"^{calculator}: {reason}"):
        await score(shadow("a", metadata=metadata), calculator)


async def test_a_reference_of_nothing_but_punctuation_matches_no_answer_by_accident() -> None:
    with pytest.raises(ScoringError, match="empty after normalisation"):
        await score(shadow("a", metadata={"reference": "?!"}), {"contains": {"ignore_punctuation": True}})


async def test_the_reference_is_for_the_last_call_of_a_task() -> None:
    metadata = {"reference": "a"}
    with pytest.raises(ScoringError, match=r"^contains: .*this call is not the last"):
        await score(shadow("a", metadata=metadata, position=0, task_calls=2), "contains")
    assert await value(shadow("a", metadata=metadata, position=1, task_calls=2), "contains") == 1
    run = replay([completion("no"), completion("a")], [completion("x")], metadata=metadata)
    assert await value(run, "exact_match") == 1
