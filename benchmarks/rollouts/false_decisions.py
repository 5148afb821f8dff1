"""False decisions: how often what is not so is said to be proven, against what is promised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rollouts.simulation import (
    ALPHA,
    Numbers,
    Random,
    Row,
    coins,
    evidence_path,
    live,
    pairs,
    proven_at,
    rate,
    z_test_says_better,
)
from slipstream.evidence import Claim, Session, differences, interval, version_level


def equal_versions(rng: Random, runs: int) -> Iterator[Row]:
    ours, theirs = [], []
    for _ in range(runs):
        policy, production = pairs(rng, 5000)
        ours.append(proven_at(policy - production, Claim.BETTER, ALPHA) < math.inf)
        theirs.append(z_test_says_better(np.cumsum(policy), np.cumsum(production)))
    yield Row('Equal, looked at after each of 5,000 pairs: ever "better"', rate(ours), "0.05 at most")
    yield Row("The same by a z-test that is repeated at each look", rate(theirs))


def clusters(rng: Random, runs: int) -> Iterator[Row]:
    """Sessions of many calls that fail or succeed together, under a level that changes within the day and over days."""
    for share in (0.5, 0.05):
        ours, theirs = [], []
        for _ in range(runs):
            count = 10_000
            arms = rng.random(count) < share
            calls = rng.geometric(0.1, count).astype(float)
            day = 0.1 * np.sin(np.arange(count) * 2 * np.pi / 1000) + np.linspace(-0.1, 0.1, count)
            quality = np.clip(rng.beta(0.5, 0.5, count) + day, 0, 1)
            right = rng.binomial(calls.astype(int), quality).astype(float)
            found = np.array(differences(map(Session, arms.tolist(), (right / calls).tolist())))
            ours.append(proven_at(found, Claim.BETTER, ALPHA) < math.inf)
            sums = [np.cumsum(numbers * arm) for numbers in (right, calls) for arm in (arms, ~arms)]
            theirs.append(z_test_says_better(sums[0], sums[1], (sums[2], sums[3])))
        where = f"10 calls a session that resemble each other, daily and lasting drift, {share:.0%} treated"
        yield Row(f'Equal, {where}: ever "better"', rate(ours), "0.05 at most")
        yield Row("The same by a z-test on calls", rate(theirs))


def trends(rng: Random, runs: int) -> Iterator[Row]:
    for change in (0.4, -0.4):
        claim = Claim.BETTER if change > 0 else Claim.WORSE

        def drifting(rng: Random, count: int, change: float = change) -> Numbers:
            return (rng.random(count) < np.linspace(0.5 - change / 2, 0.5 + change / 2, count)) * 1.0

        hits = [proven_at(live(rng, 0.05, 5000, drifting, drifting), claim, ALPHA) < math.inf for _ in range(runs)]
        moved = "rises" if change > 0 else "falls"
        yield Row(
            f'Equal, and the level of both {moved} by 0.4 in 5,000 sessions, 5% treated: ever "{claim}"',
            rate(hits),
            f"about {ALPHA * math.exp(0.2):.2f} at most",
        )


def delays(rng: Random, runs: int) -> Iterator[Row]:
    """Complaints that come after some 20 sessions, and praise that comes after 1,000 to 2,000."""
    arrival, assignment = [], []
    for _ in range(runs):
        before, count = 2000, 6000
        now = before + count
        treated = (rng.random(now) < 0.1) & (np.arange(now) >= before)  # the rollout begins amid traffic
        values = coins(0.8)(rng, now)
        come = np.arange(now) + np.where(values == 1, rng.uniform(1000, 2000, now), rng.exponential(20, now))
        order = np.argsort(come)
        order = order[come[order] <= now]
        seen, is_treated = values[order], treated[order]
        control = np.cumsum(seen * ~is_treated) / np.maximum(np.cumsum(~is_treated), 1)
        arrival.append(proven_at((seen - control)[is_treated], Claim.WORSE, ALPHA) < math.inf)
        known = [Session(bool(treated[i]), float(values[i]) if come[i] <= now else None) for i in range(before, now)]
        assignment.append(proven_at(np.array(differences(known)), Claim.WORSE, ALPHA) < math.inf)
    yield Row(
        'Equal, complaints come at once and praise late, in the order of assignment: ever "worse"',
        rate(assignment),
        "0.05 at most",
    )
    yield Row("The same in the order of arrival, against the control's mean so far", rate(arrival))


def stream(rng: Random, runs: int) -> Iterator[Row]:
    """Lifetimes of 300 versions, each compared on 2,000 pairs."""
    equal = [_lifetime(rng, lambda version: 0.0) for _ in range(runs)]
    mixed = [_lifetime(rng, lambda version: 0.1 if version % 10 == 0 else 0.0) for _ in range(runs)]
    of_them = f"of {runs} lifetimes"
    any_false = np.mean([each.false > 0 for each in equal])
    yield Row("300 equal versions in a row: any promotion", f"{any_false:.3f} {of_them}", "0.05 at most")
    alone = np.mean([each.at_alpha for each in equal])
    yield Row("The same with a level of 0.05 for each: promotions", f"{alone:.1f} in the mean {of_them}")
    false = np.mean([each.false / max(each.false + each.true, 1) for each in mixed])
    yield Row(
        "300 versions of which each tenth is better by 0.1: part of the promotions that is false",
        f"{false:.3f} in the mean {of_them}",
        "0.05 at most",
    )
    true = np.mean([each.true for each in mixed])
    yield Row("The same: promoted, of the 30 that are better", f"{true:.1f} in the mean {of_them}")


class _Lifetime(NamedTuple):
    """Numbers of promotions: false and true ones by e-LOND, and all with the same level for each version."""

    false: int
    true: int
    at_alpha: int


def _lifetime(rng: Random, gain: Callable[[int], float]) -> _Lifetime:
    false = true = at_alpha = 0
    for version in range(1, 301):
        policy, production = pairs(rng, 2000, gain(version))
        peak = float(evidence_path(policy - production, Claim.BETTER).max())
        at_alpha += peak >= -math.log(ALPHA)
        if peak >= -math.log(version_level(ALPHA, version, false + true)):
            false, true = (false, true + 1) if gain(version) > 0 else (false + 1, true)
    return _Lifetime(false, true, at_alpha)


def intervals(rng: Random, runs: int) -> Iterator[Row]:
    missed, widths = [], []
    for _ in range(runs):
        policy, production = pairs(rng, 2000, 0.1)
        found = policy - production
        above = proven_at(found, Claim.BETTER, ALPHA / 2, 0.1)
        missed.append(min(above, proven_at(found, Claim.WORSE, ALPHA / 2, -0.1)) < math.inf)
    for count in (100, 300, 1000, 3000):
        policy, production = pairs(rng, count, 0.1)
        low, high = interval((policy - production).tolist(), ALPHA)
        widths.append(f"{low:+.2f} to {high:+.2f}")
    yield Row("Better by 0.1: the 95% interval ever misses it, in 2,000 pairs", rate(missed), "0.05 at most")
    yield Row("One run: the interval after 100, 300, 1,000 and 3,000 pairs", ", ".join(widths))
