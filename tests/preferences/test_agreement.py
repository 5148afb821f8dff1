"""Krippendorff's alpha against worked examples, and its properties."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.preferences.agreement import agreement

_REPEATABLE = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)  # the same cases each time, on a machine that may be busy

# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), sections A and C: the values of each unit.
TWO_OBSERVERS = ("01", "11", "01", "00", "00", "01", "00", "00", "10", "00")
FOUR_OBSERVERS = ("111", "2232", "3333", "3333", "2222", "1234", "4444", "1121", "2222", "555", "11", "3")


def test_the_worked_example_of_two_observers_and_two_values() -> None:
    found = agreement(TWO_OBSERVERS)
    assert found.alpha == pytest.approx(0.095, abs=0.001)
    assert found.units == 10


def test_the_worked_example_of_four_observers_with_judgements_missing() -> None:
    found = agreement(FOUR_OBSERVERS)
    assert found.alpha == pytest.approx(0.743, abs=0.001)
    assert found.units == 11, "what one alone judged says nothing"


def test_it_is_not_defined_without_two_judgements_of_one_thing_or_without_two_values() -> None:
    assert agreement([]) == (None, 0)
    assert agreement([["left"], ["right"]]) == (None, 0)
    assert agreement([["left", "left"], ["left", "left"]]) == (None, 2)


VALUES = st.sampled_from(("left", "right", "tie"))


@_REPEATABLE
@given(st.lists(st.lists(VALUES, max_size=4), max_size=20))
def test_it_is_at_most_one_and_one_if_all_agree(judged: list[list[str]]) -> None:
    alpha, several = agreement(judged)
    if alpha is None:
        return
    assert several > 0
    assert alpha <= 1 + 1e-12
    agreed = all(len(set(unit)) == 1 for unit in judged if len(unit) > 1)
    assert (alpha == pytest.approx(1)) is agreed


@_REPEATABLE
@given(st.lists(st.lists(VALUES, max_size=4), max_size=20))
def test_the_order_of_annotators_and_units_does_not_matter(judged: list[list[str]]) -> None:
    before = agreement(judged).alpha
    after = agreement([sorted(unit) for unit in reversed(judged)]).alpha
    assert after == (None if before is None else pytest.approx(before))
