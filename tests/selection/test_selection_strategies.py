"""Each strategy by itself: which tasks it takes, and the reason that it counts."""

import pytest

from slipstream.selection import Decision, SelectionSettings, Selector, hash_fraction
from slipstream.trajectory import Call, Task


def task(task_id="t1", *, model="gpt-4o", tools=False, **fields):
    request = {"model": model, "messages": [], **({"tools": [{"type": "function"}]} if tools else {})}
    return Task(task_id, "s1", (Call(task_id, 0, request, {}),), **fields)


def select(settings, *tasks, clock=lambda: 0.0):
    selector = Selector(SelectionSettings.model_validate(settings), clock)
    return [(decision.selected, decision.reason) for decision in map(selector.decide, tasks)]


def taken(settings, count=100_000):
    selector = Selector(SelectionSettings.model_validate(settings))
    return {name for name in (f"task-{number}" for number in range(count)) if selector.decide(task(name)).selected}


# Four standard deviations of a fair draw of 10,000 are at most 200 tasks, of 100,000 at most 630.
DRAWS = pytest.mark.parametrize(("count", "off"), [(10_000, 200), pytest.param(100_000, 630, marks=pytest.mark.slow)])


@DRAWS
def test_sampling_takes_its_share_of_many_tasks(count, off):
    for rate in (0.01, 0.1, 0.5, 0.9):
        assert abs(len(taken({"sampling": {"rate": rate}}, count)) - count * rate) < off
    assert len(taken({"sampling": {"rate": 1}}, count)) == count
    assert not taken({"sampling": {"rate": 0}}, count)


def test_sampling_decides_alike_each_time_and_a_higher_rate_takes_more():
    tenth = taken({"sampling": {"rate": 0.1}}, 20_000)
    assert tenth == taken({"sampling": {"rate": 0.1}}, 20_000)
    assert tenth < taken({"sampling": {"rate": 0.2}}, 20_000)


@DRAWS
def test_sampling_with_another_seed_is_independent(count, off):
    one = taken({"sampling": {"rate": 0.5, "seed": 1}}, count)
    two = taken({"sampling": {"rate": 0.5, "seed": 2}}, count)
    assert abs(len(one & two) - count / 4) < off


def test_sampling_gives_its_reason():
    assert select({"sampling": {"rate": 1}}, task()) == [(True, "sampling")]
    assert select({"sampling": {"rate": 0}}, task()) == [(False, "not_sampled")]


def test_a_fraction_is_below_one_and_depends_on_the_salt():
    fractions = [hash_fraction(f"name-{number}", "salt") for number in range(1000)]
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert hash_fraction("name-1", "salt") == fractions[1] != hash_fraction("name-1", "pepper")
    assert hash_fraction("名\ud800", "salt") < 1


def test_explicit_mark_takes_what_was_marked():
    marked = task(marked=True, labels=frozenset({"refund", "vip"}))
    assert select("explicit_mark", task(), marked) == [(False, "no_mark"), (True, "explicit_mark")]
    only = {"explicit_mark": {"labels": ["vip", "beta"]}}
    assert select(only, marked, task(marked=True), task(labels=frozenset({"vip"}))) == [
        (True, "explicit_mark"),
        (False, "other_mark"),
        (False, "no_mark"),
    ]
    assert Selector(SelectionSettings.model_validate(only)).decide(marked).labels == {"vip"}


def test_labels_take_any_and_all():
    both, one, none = (task(labels=frozenset(names)) for names in (("a", "b", "c"), ("a",), ()))
    yes, no = (True, "labels"), (False, "no_label")
    assert select({"labels": {"any_of": ["a", "x"]}}, both, one, none) == [yes, yes, no]
    assert select({"labels": {"all_of": ["a", "b"]}}, both, one, none) == [yes, no, no]
    assert select({"labels": {"any_of": ["c", "x"], "all_of": ["a"]}}, both, one, none) == [yes, no, no]


def test_model_takes_names_and_patterns_of_the_whole_name():
    tasks = [task(model=name) for name in ("gpt-4o", "gpt-4o-mini", "my-gpt-4o", 4)]
    yes, no = (True, "model"), (False, "other_model")
    assert select({"model": {"names": ["gpt-4o"]}}, *tasks) == [yes, no, no, no]
    assert select({"model": {"patterns": ["gpt-4o.*"]}}, *tasks) == [yes, yes, no, no]
    assert select({"model": {"names": ["my-gpt-4o"], "patterns": ["gpt-4o"]}}, *tasks) == [yes, no, yes, no]


def test_has_tools_takes_tasks_with_tools_or_those_without():
    tasks = [task(tools=True), task()]
    assert select("has_tools", *tasks) == [(True, "has_tools"), (False, "no_tools")]
    assert select({"has_tools": {"value": False}}, *tasks) == [(False, "has_tools"), (True, "no_tools")]


def test_a_budget_lets_so_many_through_in_any_hour():
    now = 0.0
    selector = Selector(SelectionSettings.model_validate({"budget": {"tasks_per_hour": 2}}), lambda: now)
    outcomes = []
    for now in (0.0, 1800.0, 3599.0, 3600.0, 5399.0, 5400.0):  # noqa: B007 - the clock reads it
        outcomes.append(selector.decide(task()).reason)
    assert outcomes == ["budget", "budget", "budget_spent", "budget", "budget_spent", "budget"]


def test_the_largest_ttl_of_a_mark_counts():
    def ttl(settings):
        return SelectionSettings.model_validate(settings).mark_ttl()

    assert ttl({"sampling": {"rate": 0.1}}) == 60
    assert ttl("explicit_mark") == 60
    assert ttl({"explicit_mark": {"ttl": "5s"}}) == 5
    nested = [{"explicit_mark": {"ttl": "10m"}}, {"not": {"explicit_mark": {"ttl": "1h"}}}]
    assert ttl({"any": [{"all": nested}, "explicit_mark"]}) == 3600


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sampling": {}}, "needed, and not given|Field required"),
        ({"sampling": {"rate": 1.1}}, "less than or equal to 1"),
        ({"sampling": {"rate": -0.1}}, "greater than or equal to 0"),
        ({"sampling": {"rate": float("nan")}}, "than or equal to"),
        ({"sampling": {"rate": 0.1, "seed": "x"}}, "valid integer"),
        ({"explicit_mark": {"ttl": "0s"}}, "greater than 0"),
        ({"explicit_mark": {"labels": []}}, "at least one item"),
        ({"labels": {}}, "any_of or all_of"),
        ({"labels": {"any_of": "vip"}}, "valid tuple"),
        ({"labels": {"any_of": [""]}}, "at least 1 character"),
        ({"model": {}}, "names or patterns"),
        ({"model": {"patterns": ["("]}}, "valid regular expression"),
        ({"has_tools": {"value": "perhaps"}}, "valid boolean"),
        ({"has_tools": True}, "valid dictionary"),
        ({"budget": {"tasks_per_hour": 0}}, "greater than or equal to 1"),
        ({"budget": {}}, "Field required"),
        ({"any": []}, "at least one item"),
        ({"all": [{"any": []}]}, "at least one item"),
        ({"not": []}, "valid dictionary"),
        ({"not": {"any": ["has_tools", {"budget": {"tasks_per_hour": 1}}]}}, "without a budget"),
        ({}, "exactly one strategy of sampling, .*, not; found none"),
        ({"sampling": {"rate": 0.1}, "has_tools": {}}, "exactly one strategy of .*; found sampling, has_tools"),
        ({"sample": {"rate": 0.1}}, "Extra inputs are not permitted"),
        ("sample", "Extra inputs are not permitted"),
        (7, "valid dictionary"),
    ],
)
def test_bad_settings_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        SelectionSettings.model_validate(settings)


def test_a_decision_carries_nothing_unless_told():
    assert (Decision(True, "x").labels, Decision(True, "x").metadata) == (frozenset(), {})
