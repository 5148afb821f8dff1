"""Whether a figure rose: its slope over time, with an interval that says how sure that is.

The slope is Theil's and Sen's (Sen 1968, J. Am. Stat. Assoc. 63:1379): the median of the slopes between all pairs of
points, which a burst of a few samples does not move. Samples that follow each other are alike, so that the interval of
independent points would be far too narrow: it comes from a moving-block bootstrap of what is left over when the line is
taken away (Künsch 1989, Ann. Stat. 17:1217), whose blocks are longer than the faults and the sweeps that come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 400
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Slope:
    """In units of the figure a second: `low` to `high` holds the true one with 95%."""

    value: float
    low: float
    high: float

    def flat(self, bound: float) -> bool:
        """Whether it may be zero, or is below what is too little to matter."""
        return self.low <= 0.0 or self.high < bound


def slope(times: Sequence[float], values: Sequence[float], *, block: float, seed: int = 0) -> Slope:
    """How a figure went.

    Args:
        times: seconds, in order and about evenly apart.
        values: the figure at each of them; at least 8.
        block: seconds of a block of the bootstrap.
    """
    at, found = np.asarray(times, float), np.asarray(values, float)
    first, second = np.triu_indices(len(at), 1)
    apart = at[second] - at[first]

    def fitted(some: NDArray[np.float64]) -> float:
        return float(np.median((some[second] - some[first]) / apart))

    value = fitted(found)
    line = value * at
    left = found - line
    left = left - np.median(left)
    count = len(at)
    length = min(max(2, round(block / float(np.median(np.diff(at))))), count // 2)
    rng = np.random.default_rng(seed)
    slopes = []
    for _ in range(_RESAMPLES):
        starts = rng.integers(0, count - length + 1, -(-count // length))
        picked = (starts[:, None] + np.arange(length)).ravel()[:count]
        slopes.append(fitted(line + left[picked]))
    low, high = np.quantile(slopes, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Slope(value, float(low), float(high))
