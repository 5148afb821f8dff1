"""A ranking by comparisons of two at a time: the model of Bradley and Terry."""

from __future__ import annotations

import math
from collections.abc import Mapping

Wins = Mapping[tuple[str, str], float]
"""Comparisons by (winner, loser); a tie is half a win of each."""

_PRIOR = 0.5
"""Wins that each of two who were compared is given beforehand: one tie. Without it, the strength of one that never lost
would have no bound."""

_CLOSE = 1e-8
_ROUNDS = 10_000


def strengths(wins: Wins, reference: str, start: Mapping[str, float] | None = None) -> dict[str, float]:
    """The strength of each one that is linked with the reference by comparisons, the reference's own being 0.

    A beats B with probability 1 / (1 + exp(strength of B - strength of A)). These are the strengths of the greatest
    likelihood (D. R. Hunter, "MM algorithms for generalized Bradley-Terry models", 2004), found by the faster iteration
    of M. E. J. Newman, "Efficient computation of rankings from pairwise comparisons" (2023), equation 9.

    Args:
        start: strengths to begin with, such as those of similar comparisons.
    """
    rivals = _rivals(wins)
    found = _linked(rivals, reference)
    values = {one: math.exp((start or {}).get(one, 0.0)) for one in found}
    for _ in range(_ROUNDS):
        change = 0.0
        for one in found:
            if one == reference:
                continue
            value = values[one]
            won = lost = 0.0
            for other, (over, under) in rivals[one].items():
                both = value + values[other]
                won += over * values[other] / both
                lost += under / both
            values[one] = won / lost
            change = max(change, abs(math.log(values[one] / value)))
        if change < _CLOSE:
            break
    return {one: math.log(value) for one, value in values.items()}


def _rivals(wins: Wins) -> dict[str, dict[str, tuple[float, float]]]:
    """The wins over each rival and the losses to it, with the prior."""
    rivals: dict[str, dict[str, tuple[float, float]]] = {}
    for one, other in wins:
        if one != other:
            over, under = wins.get((one, other), 0.0) + _PRIOR, wins.get((other, one), 0.0) + _PRIOR
            rivals.setdefault(one, {})[other] = over, under
            rivals.setdefault(other, {})[one] = under, over
    return rivals


def _linked(rivals: Mapping[str, Mapping[str, object]], reference: str) -> list[str]:
    """Those who are linked with the reference, which is the first."""
    found = [reference]
    for one in found:
        found += [other for other in rivals.get(one, {}) if other not in found]
    return found
