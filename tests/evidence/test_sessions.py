"""Sessions in the order of assignment become differences that are fair to both arms."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.evidence import EProcess, Session, differences, sessions_per_difference

FIXED = settings(derandomize=True, deadline=None, database=None)
SESSIONS = st.lists(st.builds(Session, st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=30)


def session(text: str) -> list[Session]:
    """Sessions from words such as `C0.5` and `T1`; `T?` is still open."""
    return [Session(word[0] == "T", None if word[1:] == "?" else float(word[1:])) for word in text.split()]


def test_a_treated_session_is_compared_with_the_control_sessions_since_the_last_one() -> None:
    assert differences(session("C0.5 C1 T1  C0 T1  C1 C1 C1 T0.5  C1")) == [0.25, 1.0, -0.5]


def test_treated_sessions_without_control_between_them_are_not_left_out() -> None:
    assert differences(session("T1 T0 C1  C1 T0  T1 C1")) == [-0.5, -1.0, 0.0]


@pytest.mark.slow
@FIXED
@given(SESSIONS)
def test_arms_are_treated_alike(sessions: list[Session]) -> None:
    exchanged = [Session(not each.treated, each.value) for each in sessions]
    assert differences(exchanged) == [-each for each in differences(sessions)]


@FIXED
@given(SESSIONS, st.integers(0, 30), st.integers(0, 30))
def test_what_comes_after_an_open_session_does_not_count_before_it(
    sessions: list[Session], one: int, other: int
) -> None:
    whole = differences(sessions)
    waiting = [each._replace(value=None) if at in (one, other) else each for at, each in enumerate(sessions)]
    found = differences(waiting)
    assert found == whole[: len(found)]
    assert found == differences(sessions[: min(one, other)])


@FIXED
@given(SESSIONS, st.sampled_from([(0.0, 2.0), (-1.0, 1.0), (-4.0, 0.0)]))
def test_differences_are_in_parts_of_the_range(sessions: list[Session], bounds: tuple[float, float]) -> None:
    low, high = bounds
    moved = [Session(each.treated, low + (each.value or 0.0) * (high - low)) for each in sessions]
    assert differences(moved, low, high) == differences(sessions)
    assert all(-1 <= each <= 1 for each in differences(sessions))


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_evidence_of_equal_arms_has_a_mean_of_one_over_all_that_can_happen(share: float) -> None:
    """Exact: each assignment of six sessions, with each of their outcomes. A rule that stopped a block by an outcome
    would move the mean."""
    chance, total = 0.3, 0.0
    for arms in itertools.product((False, True), repeat=6):
        for values in itertools.product((0.0, 1.0), repeat=6):
            process = EProcess(0.0)
            for each in differences(map(Session, arms, values)):
                process.add(each)
            weight = math.prod(share if arm else 1 - share for arm in arms)
            weight *= math.prod(chance if value else 1 - chance for value in values)
            total += weight * math.exp(process.log_e)
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
def test_the_length_of_a_block_is_as_foreseen(share: float) -> None:
    rng, count = random.Random(1), 400_000
    found = differences(Session(rng.random() < share, 0.0) for _ in range(count))
    assert count / len(found) == pytest.approx(sessions_per_difference(share), rel=0.02)
    assert statistics.fmean(found) == 0


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan, math.inf])
def test_a_value_out_of_the_range_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"^value: expected a number from 0 to 1, found "):
        differences([Session(True, value)])


@pytest.mark.parametrize("high", [0.0, -1.0, math.nan, math.inf])
def test_a_range_without_width_is_refused(high: float) -> None:
    with pytest.raises(ValueError, match=r"^high: expected a number above 0 and below inf, found "):
        differences([], 0.0, high)


@pytest.mark.parametrize("share", [0, 1, math.nan])
def test_a_share_that_leaves_an_arm_empty_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"^share: expected a number above 0 and below 1, found "):
        sessions_per_difference(share)
