"""Metrics of tool use, and arguments compared with their possible values."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.evaluation.metrics import Metric, argument_share, exactly, expected_call, measured, metric_named
from slipstream.rewards.tool_use import ToolCall


@pytest.mark.parametrize(
    ("expected", "arguments", "worth"),
    [
        pytest.param({"n": [5]}, {"n": 5}, 1, id="right"),
        pytest.param({"n": [5]}, {"n": 5.0}, 1, id="a number by its value"),
        pytest.param({"n": [1]}, {"n": True}, 0, id="a truth value is no number"),
        pytest.param({"n": [5]}, {"n": "5"}, 0, id="a text is no number"),
        pytest.param({"n": [5]}, {}, 0, id="missing"),
        pytest.param({"n": [5], "unit": ["cm", ""]}, {"n": 5}, 1, id="optional, and left out"),
        pytest.param({"n": [5], "unit": ["cm", ""]}, {"n": 5, "unit": "m"}, 0.5, id="optional, and wrong"),
        pytest.param({"n": [5]}, {"n": 5, "m": 6}, 0.5, id="one too many"),
        pytest.param({"day": ["2024-04-01", "April 1, 2024"]}, {"day": "april 1 2024"}, 1, id="texts as BFCL compares"),
        pytest.param({"who": ["Ann"]}, {"who": "Anna"}, 0, id="another text"),
        pytest.param({"of": [["a b", 2]]}, {"of": ["AB", 2]}, 1, id="a list, place by place"),
        pytest.param({"of": [[1, 2]]}, {"of": [2, 1]}, 0, id="a list in another order"),
        pytest.param({"at": [{"x": [1, 2], "y": [""]}]}, {"at": {"x": 2}}, 1, id="an object with possible values"),
        pytest.param({"at": [{"x": [1], "y": [3]}]}, {"at": {"x": 1}}, 0, id="an object with a value missing"),
        pytest.param({}, {}, 1, id="nothing to give"),
    ],
)
def test_arguments_are_compared_with_the_possible_answers(
    expected: dict[str, Any], arguments: dict[str, Any], worth: float
) -> None:
    assert argument_share(arguments, expected) == worth


SEARCH = {"search": {"query": ["cheap flights", "flights"], "limit": [5, ""]}}
BOOK = {"book": {"id": [7]}}


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


@pytest.mark.parametrize(
    ("expected", "made", "values"),
    [
        pytest.param(
            [SEARCH, BOOK],
            [call("search", query="Cheap flights"), call("book", id=7)],
            (1, 1, 1, 1, 1, 1, 1),
            id="right",
        ),
        pytest.param(
            [SEARCH, BOOK], [call("book", id=7), call("search", query="flights")], (1, 1, 1, 0, 0, 1, 0), id="no order"
        ),
        pytest.param(
            [SEARCH, BOOK],
            [call("search", query="flights"), call("search", query="trains"), call("book", id=7), call("book", id=8)],
            (2 / 3, 1, 1, 1, 0.5, 1, 1),
            id="more calls than are due",
        ),
        pytest.param(
            [SEARCH, BOOK],
            [call("search", query="trains", limit=5), call("book", id=7)],
            (1, 0.75, 0.5, 1, 1, 1, 0),
            id="a wrong argument",
        ),
        pytest.param([SEARCH, BOOK], [], (0, 0, 0, 0, 0, 0, 0), id="nothing done is not efficient"),
        pytest.param([SEARCH], [ToolCall("search", None)], (1, 0, 0, 1, 1, 1, 0), id="arguments that are no object"),
        pytest.param([], [], (1, None, None, None, None, 1, 1), id="no tool is due, and none called"),
        pytest.param([], [call("book", id=7)], (0, None, None, None, None, 0, 0), id="no tool is due"),
    ],
)
def test_what_calls_are_worth(expected: list[dict[str, Any]], made: list[ToolCall], values: tuple[float, ...]) -> None:
    found = measured([expected_call(raw) for raw in expected], made)
    assert found == pytest.approx(dict(zip(Metric, values, strict=True)), nan_ok=True)


def test_the_steps_of_a_conversation() -> None:
    expected = [expected_call(SEARCH), expected_call(BOOK)]
    made = [call("search", query="flights"), call("book", id=7)]
    found = measured(expected, made, due=[True, True, False], called=[True, False, True, False], due_steps=3)

    assert found[Metric.TIMING_PRECISION] == 0.25  # only the first step is right, and one was too many
    assert found[Metric.STEP_EFFICIENCY] == 0.75


@pytest.mark.parametrize(("right", "worth"), [(True, 1), (False, 0), (None, 1)])
def test_the_answer_counts_from_end_to_end(right: bool | None, worth: float) -> None:
    made = [call("book", id=7)]
    assert measured([expected_call(BOOK)], made, answer_right=right)[Metric.END_TO_END] == worth


def test_a_call_of_production_expects_itself() -> None:
    theirs = ToolCall("book", {"id": 7, "who": {"name": "Ann", "bags": [1, {"kg": 2}]}})
    wanted = [exactly(theirs)]

    assert measured(wanted, [theirs])[Metric.RECALL] == 1
    assert measured(wanted, [call("book", id=7, who={"name": "Ann", "bags": [1, {"kg": 3}]})])[Metric.RECALL] == 0


@pytest.mark.parametrize(
    "raw", [{}, {"name": ""}, {"function": {"name": "f", "arguments": "[1]"}}, {"f": {"a": 1}}, {"f": {}, "g": {}}]
)
def test_what_is_no_expected_call_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected"):
        expected_call(raw)


def test_metrics_have_the_names_of_the_articles_too() -> None:
    assert metric_named("plan_success_rate") is metric_named("plan_success") is Metric.PLAN_SUCCESS
    with pytest.raises(ValueError, match="found 'bleu'"):
        metric_named("bleu")
