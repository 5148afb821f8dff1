"""Selection: and, or, not obey their laws, the same task gets the same decision, a budget holds, and any settings are
taken or refused in words."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slipstream.errors import ConfigError
from slipstream.selection import SelectionSettings, Selector, hash_fraction
from slipstream.trajectory import Call, Task

NAMES = st.sampled_from(["a", "b", "vip"])
PLAIN = st.one_of(
    st.builds(
        lambda rate, seed: {"sampling": {"rate": rate, "seed": seed}},
        st.sampled_from([0, 0.3, 0.5, 1]),
        st.integers(0, 3),
    ),
    st.just("explicit_mark"),
    st.builds(lambda names: {"labels": {"any_of": names}}, st.lists(NAMES, min_size=1, max_size=2)),
    st.builds(lambda value: {"has_tools": {"value": value}}, st.booleans()),
    st.builds(lambda name: {"model": {"names": [name]}}, NAMES),
)
TREES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda members: {"all": members}),
        st.lists(inner, min_size=1, max_size=3).map(lambda members: {"any": members}),
        inner.map(lambda member: {"not": member}),
    ),
    max_leaves=6,
)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    name = draw(st.text(max_size=20))
    request: dict[str, Any] = {"model": draw(NAMES)} | ({"tools": [{}]} if draw(st.booleans()) else {})
    labels = frozenset(draw(st.lists(NAMES, max_size=2)))
    return Task(name, "s", (Call(name, 0, request, {}),), labels=labels, marked=draw(st.booleans()))


def selected(settings: Any, task: Task) -> bool:
    return Selector(SelectionSettings.model_validate(settings), lambda: 0.0).decide(task).selected


@given(TREES, TREES, tasks())
def test_combinations_obey_the_laws_of_logic(a: Any, b: Any, task: Task) -> None:
    in_a, in_b = selected(a, task), selected(b, task)
    assert selected({"all": [a, b]}, task) == selected({"all": [b, a]}, task) == (in_a and in_b)
    assert selected({"any": [a, b]}, task) == selected({"any": [b, a]}, task) == (in_a or in_b)
    assert selected({"not": a}, task) is not in_a
    assert selected({"not": {"all": [a, b]}}, task) == selected({"any": [{"not": a}, {"not": b}]}, task)


@given(TREES, tasks())
def test_a_task_gets_the_same_decision_whenever_and_wherever_it_is_asked_for(tree: Any, task: Task) -> None:
    selector = Selector(SelectionSettings.model_validate(tree))
    first = selector.decide(task)
    assert first == selector.decide(task) == Selector(SelectionSettings.model_validate(tree)).decide(task)
    assert first.reason


@given(st.text(max_size=8), st.text(max_size=8), st.integers(0, 2**32))
def test_fractions_are_spread_evenly_whatever_the_names_and_the_salt(prefix: str, salt: str, start: int) -> None:
    count, parts = 2000, 10
    found = [0] * parts
    for number in range(start, start + count):
        fraction = hash_fraction(f"{prefix}{number}", salt)
        assert 0 <= fraction < 1
        found[int(fraction * parts)] += 1
    expected = count / parts
    chi_squared = sum((each - expected) ** 2 / expected for each in found)
    assert chi_squared < 45  # of 9 degrees of freedom: one in a million


@given(st.integers(1, 5), st.lists(st.floats(0, 4000), min_size=1, max_size=60), TREES, tasks())
def test_no_hour_has_more_tasks_than_its_budget(most: int, pauses: list[float], tree: Any, task: Task) -> None:
    now = [0.0]
    settings = {"all": [tree, {"budget": {"tasks_per_hour": most}}]}
    selector = Selector(SelectionSettings.model_validate(settings), lambda: now[0])
    taken: list[float] = []
    for pause in pauses:
        now[0] += pause
        if selector.decide(task).selected:
            taken.append(now[0])
    assert all(sum(end - 3600 < at <= end for at in taken) <= most for end in taken)
    assert not taken or selected(tree, task)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | NAMES
    | st.sampled_from(["sampling", "explicit_mark", "os:getcwd"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "sampling",
                    "rate",
                    "seed",
                    "labels",
                    "any_of",
                    "model",
                    "names",
                    "patterns",
                    "budget",
                    "tasks_per_hour",
                    "all",
                    "any",
                    "not",
                    "explicit_mark",
                    "ttl",
                    "has_tools",
                    "value",
                    "x",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(ANYTHING)
def test_any_settings_are_taken_or_refused_in_words(settings: Any) -> None:
    try:
        made = SelectionSettings.model_validate(settings)
        Selector(made)
    except (ValidationError, ConfigError):
        return
    assert math.isfinite(made.mark_ttl())
