"""Estimates of the differences that are still missing until a claim is proven.

Each bet's capital is taken to go on growing at its mean rate so far. An estimate, and no promise: it is as uncertain as
the mean difference itself.
"""

from __future__ import annotations

import math

from slipstream.evidence.betting import EProcess, log_mean
from slipstream.evidence.checks import between
from slipstream.evidence.claims import Evidence


def differences_missing(evidence: Evidence, level: float) -> int | None:
    """The number of further differences until the claim is proven, if they are like those so far.

    Args:
        evidence: for the claim.
        level: at which it is to be proven, above 0 and below 1.

    Returns:
        0 if it is proven; None if no number is foreseen, because there is no difference yet or those so far speak
        against the claim. In sessions it is this times `sessions_per_difference(share)`.

    Raises:
        ValueError: `level` is outside of its bounds.
    """
    threshold = -math.log(between("level", level, 0, 1))
    missing = [_missing(evidence, process, threshold) for _, process in evidence.processes]
    return None if None in missing else max(each for each in missing if each is not None)


def _missing(evidence: Evidence, process: EProcess, threshold: float) -> int | None:
    if evidence.log_e_of(process) >= threshold:
        return 0
    if max(process.logs) <= 0:
        return None

    def enough(further: int) -> bool:
        growth = 1 + further / process.count
        return log_mean([log * growth for log in process.logs]) >= threshold

    few, many = 0, 1
    while not enough(many):
        few, many = many, many * 2
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many
