"""Strategies together: which one gives the reason, and that no order of them wastes a budget."""

import itertools

import pytest

from slipstream.selection import SelectionSettings, Selector
from slipstream.trajectory import Call, Task

TOOLS = Task("tools", "s", (Call("tools", 0, {"tools": [{}]}, {}),), labels=frozenset({"vip"}), marked=True)
PLAIN = Task("plain", "s", (Call("plain", 0, {}, {}),))
ALWAYS = {"sampling": {"rate": 1}}
NEVER = {"sampling": {"rate": 0}}


def selector(settings, clock=lambda: 0.0):
    return Selector(SelectionSettings.model_validate(settings), clock)


@pytest.mark.parametrize(
    ("settings", "of_tools", "of_plain"),
    [
        ({"any": ["explicit_mark", ALWAYS]}, (True, "explicit_mark"), (True, "sampling")),
        ({"any": [ALWAYS, "explicit_mark"]}, (True, "sampling"), (True, "sampling")),
        ({"any": ["explicit_mark", NEVER]}, (True, "explicit_mark"), (False, "no_mark+not_sampled")),
        ({"all": ["explicit_mark", ALWAYS]}, (True, "explicit_mark+sampling"), (False, "no_mark")),
        ({"all": [NEVER, "explicit_mark"]}, (False, "not_sampled"), (False, "not_sampled")),
        ({"not": "has_tools"}, (False, "has_tools"), (True, "no_tools")),
        ({"not": {"not": "has_tools"}}, (True, "has_tools"), (False, "no_tools")),
        (
            {"all": [{"not": "explicit_mark"}, {"any": [NEVER, ALWAYS]}]},
            (False, "explicit_mark"),
            (True, "no_mark+sampling"),
        ),
    ],
)
def test_and_or_not(settings, of_tools, of_plain):
    decide = selector(settings).decide
    assert [(d.selected, d.reason) for d in (decide(TOOLS), decide(PLAIN))] == [of_tools, of_plain]


def test_labels_come_from_the_strategies_that_selected():
    decide = selector({"all": [{"labels": {"any_of": ["vip"]}}, "explicit_mark"]}).decide
    assert decide(TOOLS).labels == {"vip"}
    assert decide(PLAIN).labels == frozenset()
    assert selector({"not": {"not": {"labels": {"any_of": ["vip"]}}}}).decide(TOOLS).labels == frozenset()


@pytest.mark.parametrize(
    "members", list(itertools.permutations([{"budget": {"tasks_per_hour": 1}}, "has_tools", ALWAYS]))
)
def test_a_budget_is_not_spent_on_a_task_that_another_member_refuses(members):
    decide = selector({"all": members}).decide
    assert [decide(PLAIN).reason for _ in range(5)] == ["no_tools"] * 5
    assert decide(TOOLS).selected
    assert decide(TOOLS).reason == "budget_spent"
    assert decide(PLAIN).reason == "no_tools"  # not the budget: it would have been refused anyway


def test_a_budget_deep_in_the_tree_is_not_wasted_either():
    budget = {"budget": {"tasks_per_hour": 1}}
    decide = selector({"all": [{"any": [budget, NEVER]}, {"all": [budget, "has_tools"]}]}).decide
    assert not any(decide(PLAIN).selected for _ in range(5))
    assert decide(TOOLS).selected
    assert decide(TOOLS).reason == "budget_spent+not_sampled"


def test_two_budgets_in_one_tree_are_counted_apart():
    budget = {"budget": {"tasks_per_hour": 1}}
    decide = selector({"any": [{"all": ["has_tools", budget]}, budget]}).decide
    assert [decide(TOOLS).reason for _ in range(3)] == ["has_tools+budget", "budget", "budget_spent+budget_spent"]
