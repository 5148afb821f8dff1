"""The e-process: a fair bet while its hypothesis holds, whatever happened before."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slipstream.evidence import EProcess
from slipstream.evidence.betting import BETS, log_e_of

FIXED = settings(derandomize=True, deadline=None, database=None)
DIFFERENCE = st.floats(-1, 1).map(lambda number: round(number, 3))
DIFFERENCES = st.lists(DIFFERENCE, max_size=40)
MARGIN = st.floats(-0.95, 0.95)


def after(found: list[float], margin: float) -> EProcess:
    process = EProcess(margin)
    for each in found:
        process.add(each)
    return process


def test_bets_are_geometric_from_a_hundredth_to_most_of_the_capital() -> None:
    assert len(BETS) == 16
    assert (BETS[0], BETS[-1]) == (0.01, pytest.approx(0.95))
    assert [b / a for a, b in itertools.pairwise(BETS)] == pytest.approx([BETS[1] / BETS[0]] * 15)


@FIXED
@given(DIFFERENCES, MARGIN)
def test_it_is_the_formula(found: list[float], margin: float) -> None:
    m = (1 + margin) / 2
    direct = sum(math.prod(1 + bet * ((each + 1) / 2 / m - 1) for each in found) for bet in BETS) / len(BETS)
    assert after(found, margin).log_e == pytest.approx(math.log(direct), abs=1e-9)


@pytest.mark.slow
@FIXED
@given(DIFFERENCES, MARGIN, DIFFERENCE, DIFFERENCE, st.floats(0, 1))
def test_no_bet_has_a_gain_in_the_mean_while_the_hypothesis_holds(
    before: list[float], margin: float, low: float, high: float, below: float
) -> None:
    """Algebra of one step: any two values, with any chances that give a mean of at most the margin."""
    assume(low < margin < high)
    at_margin = (margin - low) / (high - low)
    chance = at_margin * below
    now = math.exp(after(before, margin).log_e)
    lower, upper = (math.exp(after([*before, each], margin).log_e) for each in (low, high))
    assert min(lower, upper) > 0
    assert (1 - chance) * lower + chance * upper <= now * (1 + 1e-9)
    assert (1 - at_margin) * lower + at_margin * upper == pytest.approx(now, rel=1e-9)


@pytest.mark.slow
def test_peeking_at_each_difference_keeps_the_error_rate() -> None:
    """Differences of equal arms, whose spread changes with what came before: of 400 runs, 20 may reach it."""
    rng, reached = random.Random(5), 0
    for _ in range(400):
        process, last = EProcess(0.0), 0.0
        for _ in range(300):
            last = rng.choice((-1.0, 0.0, 1.0)) if last <= 0 else rng.uniform(-0.3, 0.3)
            process.add(last)
        reached += process.peak >= math.log(20)
    assert 0 < reached <= 20


@FIXED
@given(DIFFERENCES, MARGIN, st.randoms())
def test_the_order_of_differences_does_not_matter(found: list[float], margin: float, chance: random.Random) -> None:
    shuffled = chance.sample(found, len(found))
    assert after(shuffled, margin).log_e == pytest.approx(after(found, margin).log_e, abs=1e-9)
    assert log_e_of(Counter(found), margin) == pytest.approx(after(found, margin).log_e, abs=1e-9)


@FIXED
@given(DIFFERENCES, MARGIN, MARGIN)
def test_more_is_harder_to_prove(found: list[float], one: float, other: float) -> None:
    assert after(found, max(one, other)).log_e <= after(found, min(one, other)).log_e + 1e-9


@FIXED
@given(DIFFERENCES, MARGIN, DIFFERENCE, DIFFERENCE)
def test_a_greater_difference_is_more_evidence(found: list[float], margin: float, one: float, other: float) -> None:
    lesser, greater = (after([*found, each], margin).log_e for each in sorted((one, other)))
    assert lesser <= greater + 1e-9


def test_no_number_of_differences_overflows_it() -> None:
    process = after([1.0] * 20_000 + [-1.0] * 50_000, -0.5)
    assert process.peak > 10_000
    assert math.isfinite(process.log_e)
    assert process.count == 70_000


@pytest.mark.parametrize("difference", [1.01, -1.01, math.nan])
def test_a_difference_out_of_range_is_refused_and_changes_nothing(difference: float) -> None:
    process = after([0.5], 0.0)
    with pytest.raises(ValueError, match=r"^difference: expected a number from -1 to 1, found "):
        process.add(difference)
    assert (process.count, process.log_e) == (1, after([0.5], 0.0).log_e)


@pytest.mark.parametrize("margin", [1, -1, 2.0, math.nan])
def test_a_margin_that_no_difference_can_pass_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match=r"^margin: expected a number above -1 and below 1, found "):
        EProcess(margin)
