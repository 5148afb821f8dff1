"""Levels over a stream of versions and over several guardrails keep one error rate for all together."""

from __future__ import annotations

import math
import statistics

import pytest

from slipstream.evidence import guardrail_level, version_level


def test_levels_without_a_promotion_add_up_to_alpha() -> None:
    last = 2000
    seen = math.fsum(version_level(0.05, version, 0) for version in range(1, last + 1))
    power = 0.1 * version_level(0.05, 1, 0) ** -1 * 0.05  # of the integral of x ** -1.1 over the rest, and its constant
    rest = [0.05 * at**-0.1 / power for at in (last + 1, last)]
    assert rest[0] < 0.05 - seen < rest[1]


def test_each_promotion_adds_as_much_again() -> None:
    assert version_level(0.05, 9, 3) == pytest.approx(4 * version_level(0.05, 9, 0))
    assert version_level(0.05, 10, 3) < version_level(0.05, 9, 3)


def test_the_false_discovery_rate_holds_when_all_equal_versions_share_their_luck() -> None:
    """Each even version is better and promoted. The others are equal, and their e-values are as large as they can be:
    1 / level with probability level, and all of them at once. The mean is over that one stroke of luck."""
    alpha, shares = 0.2, []
    for luck in range(2000):
        true = false = 0
        for version in range(1, 31):
            if version % 2 == 0:
                true += 1
            elif (luck + 0.5) / 2000 <= version_level(alpha, version, true + false):
                false += 1
        shares.append(false / (true + false))
    assert 0.005 < statistics.fmean(shares) <= alpha


def test_guardrails_share_a_level() -> None:
    assert guardrail_level(0.05, 4) == 0.0125


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1, 0), "alpha: expected a number above 0 and below 1, found 0.0"),
        ((0.05, 0, 0), "version: expected an integer, at least 1, found 0"),
        ((0.05, 1.5, 0), "version: expected an integer, at least 1, found 1.5"),
        ((0.05, 3, -1), "promotions: expected an integer, at least 0, found -1"),
        ((0.05, 3, 3), "promotions: expected fewer than version, 3, found 3"),
    ],
)
def test_a_version_that_cannot_be_is_refused(arguments: tuple[float, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        version_level(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 1), "alpha: expected a number above 0 and below 1, found 1.0"),
        ((0.05, 0), "guardrails: expected an integer, at least 1, found 0"),
    ],
)
def test_guardrails_that_cannot_be_are_refused(arguments: tuple[float, int], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        guardrail_level(*arguments)
