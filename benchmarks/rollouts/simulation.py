"""Simulated traffic of two versions, and the evidence that it gives, with numpy for many runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slipstream.evidence import Claim, Session, differences
from slipstream.evidence.betting import BETS

Numbers = NDArray[np.float64]
Random = np.random.Generator
Arm = Callable[[Random, int], Numbers]
"""A function of a source of chance and a number of sessions, to the value of each."""

ALPHA = 0.05
_BETS = np.array(BETS)[:, None]


class Row(NamedTuple):
    case: str
    found: str
    promised: str = ""


def evidence_path(found: Numbers, claim: Claim, margin: float = 0.0) -> Numbers:
    """The logarithm of the evidence for a claim of one side, after each of the differences."""
    signed = found if claim is Claim.BETTER else -found
    logs = np.cumsum(np.log1p(_BETS * ((signed + 1) / (1 + margin) - 1)), axis=1)
    greatest = logs.max(axis=0)
    path: Numbers = greatest + np.log(np.exp(logs - greatest).mean(axis=0))
    return path


def proven_at(found: Numbers, claim: Claim, level: float, margin: float = 0.0) -> float:
    """The number of differences after which the claim is proven for the first time, or infinity."""
    reached = evidence_path(found, claim, margin) >= -math.log(level)
    return float(reached.argmax() + 1) if reached.any() else math.inf


def z_test_says_better(treated: Numbers, control: Numbers, counts: tuple[Numbers, Numbers] | None = None) -> bool:
    """True if a z-test at 0.05, repeated at each look, ever says that the treatment is better.

    The arguments are running sums of values that are 0 or 1, one for each look, and the running counts of such values.
    """
    looks = np.arange(1.0, len(treated) + 1)
    n, m = counts if counts is not None else (looks, looks)
    enough = (n >= 30) & (m >= 30)
    p, q, n, m = treated[enough] / n[enough], control[enough] / m[enough], n[enough], m[enough]
    error = np.sqrt(p * (1 - p) / n + q * (1 - q) / m)
    return bool(np.any(p - q > 1.645 * error))


def pairs(rng: Random, count: int, gain: float = 0.0) -> tuple[Numbers, Numbers]:
    """Rewards of policy and production for the same prompts: 0 or 1, and prompts are more or less difficult."""
    chance = rng.uniform(0.4, 0.8, count)
    return (rng.random(count) < chance + gain) * 1.0, (rng.random(count) < chance) * 1.0


def coins(chance: float) -> Arm:
    return lambda rng, count: (rng.random(count) < chance) * 1.0


def live(rng: Random, share: float, count: int, control: Arm, treated: Arm) -> Numbers:
    """Differences of `count` sessions, each of which is treated with probability `share`."""
    arms = rng.random(count) < share
    values = np.where(arms, treated(rng, count), control(rng, count))
    return np.array(differences(map(Session, arms.tolist(), values.tolist())))


def rate(hits: list[bool]) -> str:
    return f"{np.mean(hits):.3f} of {len(hits):,} runs"


def typical(numbers: Sequence[float], unit: str) -> str:
    """Median and ninth decile; a run without a decision counts as infinitely long."""
    shown = [f"{each:,.0f}" if math.isfinite(each) else "more than simulated" for each in deciles(numbers, (5, 9))]
    return f"{shown[0]} {unit} (in 9 of 10 runs at most {shown[1]})"


def deciles(numbers: Sequence[float], wanted: tuple[int, ...]) -> list[float]:
    ranked = sorted(numbers)
    return [ranked[min(len(ranked) - 1, decile * len(ranked) // 10)] for decile in wanted]
