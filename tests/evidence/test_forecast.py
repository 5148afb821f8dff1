"""Differences that are missing until a claim is proven."""

from __future__ import annotations

import pytest
from collected_evidence import evidence
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.evidence import Claim, Evidence, differences_missing

FIXED = settings(derandomize=True, deadline=None, database=None, max_examples=30)


@FIXED
@given(st.lists(st.sampled_from([-0.5, 0.0, 0.25, 1.0]), min_size=4, max_size=4), st.sampled_from([0.05, 0.001]))
def test_if_differences_go_on_as_they_were_the_claim_is_proven_then(pattern: list[float], level: float) -> None:
    collected = evidence(Claim.BETTER, 0.0, pattern)
    missing = differences_missing(collected, level)
    if missing is None:
        assert max(collected.processes[0][1].logs) <= 0
        return
    rounds = -(-missing // 4)
    before = evidence(Claim.BETTER, 0.0, sorted(pattern) * rounds)  # the greatest last: no peak before the end
    after = evidence(Claim.BETTER, 0.0, sorted(pattern) * (rounds + 1))
    assert after.proven(level)
    assert rounds < 2 or not before.proven(level) or missing % 4 != 1


def test_equality_waits_for_its_slower_half() -> None:
    found = [0.05] * 20
    equal = differences_missing(evidence(Claim.EQUAL, 0.2, found), 0.05)
    halves = [differences_missing(evidence(claim, -0.2, found), 0.05) for claim in (Claim.BETTER, Claim.WORSE)]
    assert None not in halves
    assert equal == max(each for each in halves if each is not None)


def test_a_proven_claim_misses_nothing() -> None:
    assert differences_missing(evidence(Claim.BETTER, 0.0, [1.0] * 40), 0.05) == 0


@pytest.mark.parametrize("found", [[], [-0.2] * 10, [0.0] * 10])
def test_nothing_is_foreseen_from_nothing_or_from_the_contrary(found: list[float]) -> None:
    assert differences_missing(evidence(Claim.BETTER, 0.0, found), 0.05) is None


def test_a_level_that_is_no_error_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^level: expected a number above 0 and below 1, found 0$"):
        differences_missing(Evidence(Claim.BETTER), 0)
