"""Lengths: sessions until a gain, a harm or equality is proven, and until a later harm is noticed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rollouts.simulation import ALPHA, Random, Row, coins, deciles, live, pairs, proven_at, rate, typical
from slipstream.evidence import (
    Claim,
    Detector,
    Evidence,
    differences_missing,
    guardrail_level,
    sessions_per_difference,
    version_level,
)

_GUARDRAILS = 4


def gains(rng: Random, runs: int) -> Iterator[Row]:
    levels = {
        "one version": ALPHA,
        "the first of a stream": version_level(ALPHA, 1, 0),
        "the 300th after 30 promotions": version_level(ALPHA, 300, 30),
        "the 300th after none": version_level(ALPHA, 300, 0),
    }
    for gain in (0.1, 0.2):
        for name, level in levels.items():
            needed = []
            for _ in range(runs):
                policy, production = pairs(rng, 5000, gain)
                needed.append(proven_at(policy - production, Claim.BETTER, level))
            yield Row(f"Better by {gain:g}, {name}: until promoted", typical(needed, "pairs"))


class _Canary(NamedTuple):
    """A version that answers a share of the sessions, whose values are 0 or 1."""

    case: str
    share: float
    control: float
    treated: float
    level: float
    claim: Claim = Claim.WORSE
    margin: float = 0.0


def _canaries() -> Iterator[_Canary]:
    several = guardrail_level(ALPHA, _GUARDRAILS)
    for name, level in (("one guardrail", ALPHA), (f"one of {_GUARDRAILS} guardrails", several)):
        for harm in (0.1, 0.2, 0.4):
            case = f"Worse by {harm:g}, 5% treated, {name}: until rolled back"
            yield _Canary(case, 0.05, 0.6, 0.6 - harm, level)
        for failing in (0.05, 0.1, 0.3):
            case = f"Failures rise from 0.5% to {failing:.0%}, 10% treated, {name}: until rolled back"
            yield _Canary(case, 0.1, 0.995, 1 - failing, level)
    for margin in (0.01, 0.02, 0.05):
        case = f"Equal with 0.5% failures, 10% treated: until less than {margin:g} more is proven"
        yield _Canary(case, 0.1, 0.995, 0.995, ALPHA, Claim.BETTER, -margin)


def harms(rng: Random, runs: int) -> Iterator[Row]:
    for each in _canaries():
        sessions = int(5000 / each.share)
        treated_in_one = each.share * sessions_per_difference(each.share)
        needed = []
        for _ in range(runs):
            found = live(rng, each.share, sessions, coins(each.control), coins(each.treated))
            needed.append(proven_at(found, each.claim, each.level, each.margin) * treated_in_one)
        yield Row(each.case, typical(needed, "treated sessions"))


def forecasts(rng: Random, runs: int) -> Iterator[Row]:
    for gain in (0.1, 0.2):
        ratios: list[float] = []
        while len(ratios) < runs:
            policy, production = pairs(rng, 5000, gain)
            found = policy - production
            needed = proven_at(found, Claim.BETTER, ALPHA)
            if not 40 <= needed < math.inf:
                continue
            evidence = Evidence(Claim.BETTER)
            for each in found[: int(needed / 2)].tolist():
                evidence.add(each)
            missing = differences_missing(evidence, ALPHA)
            ratios.append(math.inf if missing is None else missing / (needed - int(needed / 2)))
        low, middle, high = (f"{each:.1f}" if math.isfinite(each) else "none" for each in deciles(ratios, (1, 5, 9)))
        yield Row(
            f"Better by {gain:g}, half way: pairs foreseen, as a multiple of those that were missing",
            f"{middle} in the median, {low} to {high} in 8 of 10 runs",
        )


def detection(rng: Random, runs: int) -> Iterator[Row]:
    """A version that is promoted and equal, and becomes worse by 0.2 after 2,000 differences."""
    run_length, early, delay, tested = 10_000, [], [], []
    for _ in range(runs):
        healthy, hurt = (live(rng, 0.95, 42_000, coins(0.6), coins(0.6 - harm))[:2000] for harm in (0.0, 0.2))
        harm = -np.concatenate([healthy, hurt])
        detector = Detector(0.0, run_length)
        alarm = next((index for index, each in enumerate(harm.tolist(), 1) if detector.add(each)), math.inf)
        early.append(alarm <= 2000)
        if alarm > 2000:
            delay.append(alarm - 2000.0)
            tested.append(max(0.0, proven_at(harm, Claim.BETTER, 1 / run_length) - 2000))
    yield Row(
        "Equal after promotion, 5% control: an alarm within 2,000 differences",
        rate(early),
        f"one in {run_length:,} differences at most, in the mean",
    )
    yield Row("Worse by 0.2 from then on: until the alarm", typical(delay, "control sessions"))
    yield Row("The same by one e-process from the promotion on", typical(tested, "control sessions"))
