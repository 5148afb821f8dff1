"""Means, standard errors of clusters, and judgements about paired differences."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.evaluation.statistics import Judgement, judged, paired, summed


def test_with_one_case_a_session_it_is_the_usual_standard_error() -> None:
    values = [0.0, 1.0, 1.0, 0.5, 0.25]
    found = summed(list(enumerate(values)))
    mean = sum(values) / 5
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / 4)
    assert found["mean"] == pytest.approx(mean)
    assert found["std"] == pytest.approx(std, abs=1e-6)
    assert found["standard_error"] == pytest.approx(std / math.sqrt(5), abs=1e-6)


def test_cases_that_are_alike_within_a_session_do_not_count_as_many() -> None:
    ten_times: list[tuple[Hashable, float]] = [
        (session, float(session % 2)) for session in range(20) for _ in range(10)
    ]
    once: list[tuple[Hashable, float]] = [(session, float(session % 2)) for session in range(20)]
    assert summed(ten_times)["standard_error"] == summed(once)["standard_error"]
    assert (summed(ten_times)["count"], summed(ten_times)["sessions"]) == (200, 20)


def test_too_little_has_no_error_and_nothing_has_no_mean() -> None:
    assert summed([]) == {"mean": None, "std": None, "standard_error": None, "count": 0, "sessions": 0}
    assert summed([("a", 1.0), ("a", 0.0)])["standard_error"] is None
    assert summed([("a", 1.0)])["std"] is None


def test_pairs_are_cases_that_both_have_and_a_difference_is_a_sessions() -> None:
    treated, control = {"a": 2.0, "b": 0.0, "c": 2.0, "d": 2.0}, {"a": 0.0, "b": 2.0, "c": 1.0, "e": 0.0}
    sessions = {"a": 0, "b": 0, "c": 1, "d": 1, "e": 2}
    assert paired(treated, control, sessions, 2.0) == ([0.0, 0.5], 3)
    assert paired({}, control, sessions, 2.0) == ([], 0)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([0.9] * 20, Judgement.BETTER),
        ([-0.9] * 20, Judgement.WORSE),
        ([0.0] * 120, Judgement.EQUAL),
        ([0.0] * 20, Judgement.NOT_ENOUGH_DATA),
        ([], Judgement.NOT_ENOUGH_DATA),
        ([0.02] * 2000, Judgement.BETTER),
        ([-0.02] * 2000, Judgement.EQUAL),
    ],
)
def test_judgements(differences: list[float], expected: Judgement) -> None:
    found = judged(differences, len(differences), margin=0.05, level=0.05)
    assert found["verdict"] is expected
    assert (found["missing"] is None) is (expected is not Judgement.NOT_ENOUGH_DATA)


@pytest.mark.parametrize(
    ("differences", "expected"),
    [([1.0] * 12 + [-1.0] * 88, Judgement.WORSE), ([0.0] * 400 + [-1.0] * 100, Judgement.WORSE)],
    ids=["better at first", "equal at first"],
)
def test_a_file_that_is_sorted_by_topic_gives_the_judgement_of_any_order(
    differences: list[float], expected: Judgement
) -> None:
    def found(some: list[float]) -> dict[str, object]:
        return judged(some, len(some), margin=0.05, level=0.05)

    shuffled = random.Random(1).sample(differences, len(differences))
    assert found(differences) == found(differences[::-1]) == found(shuffled)
    assert found(differences)["verdict"] is expected


def test_what_was_better_at_first_is_missing_as_much_as_in_any_order() -> None:
    differences = [1.0] * 12 + [-1.0] * 10
    found, turned = (judged(some, 22, margin=0.05, level=0.05) for some in (differences, differences[::-1]))
    assert found == turned
    assert found["verdict"] is Judgement.NOT_ENOUGH_DATA
    assert found["missing"]["sessions"]


def test_what_is_missing_is_about_right() -> None:
    found = judged([0.0] * 20, 40, margin=0.05, level=0.05)
    missing = found["missing"]["sessions"]
    assert found["missing"]["cases"] == 2 * missing
    assert judged([0.0] * (20 + missing), 0, margin=0.05, level=0.05)["verdict"] is Judgement.EQUAL
    assert judged([0.0] * (20 + missing // 2), 0, margin=0.05, level=0.05)["verdict"] is Judgement.NOT_ENOUGH_DATA
    assert judged([], 0, margin=0.05, level=0.05)["missing"] == {"sessions": None, "cases": None}


@pytest.mark.slow
def test_equal_versions_are_seldom_called_better_or_worse() -> None:
    drawn = random.Random(4)
    wrong = 0
    for _ in range(200):
        differences = [float(drawn.randint(-1, 1)) for _ in range(100)]
        wrong += judged(differences, 100, margin=0.05, level=0.05)["verdict"] in (Judgement.BETTER, Judgement.WORSE)
    assert wrong <= 15


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_mean_is_the_mean_and_errors_are_finite(values: list[tuple[int, float]]) -> None:
    found = summed(list(values))
    assert found["mean"] == pytest.approx(sum(value for _, value in values) / len(values), abs=1e-5)
    assert found["standard_error"] is None or 0 <= found["standard_error"] < 2
