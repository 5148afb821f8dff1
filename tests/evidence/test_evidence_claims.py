"""Claims: better, worse, equal within a margin."""

from __future__ import annotations

import math

import pytest
from collected_evidence import evidence
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.evidence import Claim, Evidence

FIXED = settings(derandomize=True, deadline=None, database=None)
DIFFERENCES = st.lists(st.floats(-1, 1), max_size=40)
MARGIN = st.floats(0.01, 0.9)


@FIXED
@given(DIFFERENCES, st.floats(-0.9, 0.9))
def test_worse_is_better_with_the_arms_exchanged(found: list[float], margin: float) -> None:
    exchanged = [-each for each in found]
    assert evidence(Claim.WORSE, margin, found).log_e == evidence(Claim.BETTER, margin, exchanged).log_e


@FIXED
@given(DIFFERENCES, MARGIN)
def test_equal_is_neither_much_worse_nor_much_better(found: list[float], margin: float) -> None:
    both = [evidence(claim, -margin, found).log_e for claim in (Claim.BETTER, Claim.WORSE)]
    assert evidence(Claim.EQUAL, margin, found).log_e == min(both)


@FIXED
@given(DIFFERENCES, MARGIN)
def test_better_and_worse_are_not_both_proven_by_much(found: list[float], margin: float) -> None:
    better, worse = (evidence(claim, margin, found) for claim in (Claim.BETTER, Claim.WORSE))
    assert better.processes[0][1].log_e <= 0 or worse.processes[0][1].log_e <= 0


def test_a_proof_does_not_fall_back() -> None:
    collected = evidence(Claim.BETTER, 0.0, [0.8] * 30)
    assert collected.proven(0.05)
    for _ in range(100):
        collected.add(-1.0)
    assert collected.proven(0.05)


def test_no_data_proves_nothing() -> None:
    assert not any(evidence(claim, 0.1, []).proven(0.99) for claim in Claim)


def test_a_stricter_level_takes_longer() -> None:
    needed = {}
    for level in (0.05, 0.001):
        collected = Evidence(Claim.BETTER)
        while not collected.proven(level):
            collected.add(0.2)
            needed[level] = collected.processes[0][1].count
    assert 20 < needed[0.05] < needed[0.001] < 100


@pytest.mark.parametrize(("claim", "margin"), [(Claim.BETTER, 1.0), (Claim.WORSE, -1.0), (Claim.BETTER, math.nan)])
def test_a_margin_out_of_bounds_is_refused(claim: Claim, margin: float) -> None:
    with pytest.raises(ValueError, match=r"^margin: expected a number above -1 and below 1, found "):
        Evidence(claim, margin)


@pytest.mark.parametrize("margin", [0.0, -0.1, 1.0])
def test_equality_needs_a_margin(margin: float) -> None:
    with pytest.raises(ValueError, match=r"^margin: expected a number above 0 and below 1, found "):
        Evidence(Claim.EQUAL, margin)


@pytest.mark.parametrize("level", [0, 1, 5, math.nan])
def test_a_level_that_is_no_error_rate_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=r"^level: expected a number above 0 and below 1, found "):
        Evidence(Claim.BETTER).proven(level)
