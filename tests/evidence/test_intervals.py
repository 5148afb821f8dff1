"""Intervals: the differences that are not refuted."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.evidence import Claim, Evidence, interval
from slipstream.evidence.betting import log_e_of

FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=40)
DIFFERENCES = st.lists(st.floats(-1, 1), max_size=60)


@FIXED
@given(DIFFERENCES, st.randoms())
def test_the_interval_has_the_mean_whatever_the_order(found: list[float], chance: random.Random) -> None:
    low, high = interval(found, 0.05)
    assert -1 <= low <= (statistics.fmean(found) if found else 0) <= high <= 1
    assert interval(chance.sample(found, len(found)), 0.05) == (low, high)


@FIXED
@given(DIFFERENCES)
def test_the_arms_exchanged_give_the_mirror_image(found: list[float]) -> None:
    low, high = interval(found, 0.05)
    assert interval([-each for each in found], 0.05) == (-high, -low)


@FIXED
@given(DIFFERENCES)
def test_a_surer_interval_has_the_less_sure_one(found: list[float]) -> None:
    (low, high), (lower, higher) = interval(found, 0.2), interval(found, 0.01)
    assert lower <= low <= high <= higher


@FIXED
@given(DIFFERENCES)
def test_its_ends_are_where_the_evidence_reaches_the_level(found: list[float]) -> None:
    low, _ = interval(found, 0.05)
    threshold = math.log(2 / 0.05)
    if low > -1:  # refuted, and with all digits of the differences too
        assert log_e_of(Counter(found), low) >= threshold - 1e-9
    step = 0.001 + 2 * 2**-14  # the rounding of differences, and the last halving
    assert low + step >= 1 or log_e_of(Counter(found), low + step) < threshold


def test_a_claim_is_proven_where_the_interval_says_so() -> None:
    found = [0.5, 0.25, 0.0, 0.75] * 20
    low, high = interval(found, 0.1)
    assert 0.1 < low < 0.375 < high < 0.6
    for margin, proven in ((low - 0.01, True), (low + 0.01, False)):
        better = Evidence(Claim.BETTER, margin)
        for each in found:
            better.add(each)
        assert better.proven(0.05) is proven


def test_it_gets_narrower() -> None:
    rng = random.Random(1)
    found = [float(rng.random() < 0.7) - float(rng.random() < 0.6) for _ in range(1000)]
    widths = [high - low for low, high in (interval(found[:count], 0.05) for count in (0, 100, 1000))]
    assert widths[0] == 2
    assert 0.4 < widths[1] < 0.7
    assert 0.1 < widths[2] < 0.2


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^difference: expected a number from -1 to 1, found nan$"):
        interval([0.0, math.nan], 0.05)
    with pytest.raises(ValueError, match=r"^level: expected a number above 0 and below 1, found 1$"):
        interval([], 1)
