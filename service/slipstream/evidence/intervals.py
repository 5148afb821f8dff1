"""Confidence sequences for the mean difference.

Source: Waudby-Smith and Ramdas, arXiv:2010.09686, its section on betting: the interval has each mean that the e-process
against it has not refuted. E falls as the margin rises, so bisection finds the ends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from slipstream.evidence.betting import log_e_of
from slipstream.evidence.checks import between, within

_GRID = 1000
"""Differences are rounded to parts of this, away from the interval's middle: it becomes wider by at most one such part
at each end, and takes no more time when there are many."""

_STEPS = 14
"""Halvings of [-1, 1]: each end is found to 0.00012."""


def interval(differences: Sequence[float], level: float) -> tuple[float, float]:
    """An interval for the mean difference, right at all times at once with probability 1 - `level`.

    Intervals of the same comparison may be intersected: each of them holds with that probability together with all
    others.

    Args:
        differences: numbers in [-1, 1]; their order does not matter.
        level: above 0 and below 1; each end may be wrong with half of it.

    Returns:
        Its ends, in [-1, 1]; (-1, 1) without differences.

    Raises:
        ValueError: an argument is outside of its bounds.
    """
    return interval_of(Counter(differences), level)


def interval_of(counted: Mapping[float, int], level: float, grid: int = _GRID) -> tuple[float, float]:
    """As `interval`, from each difference with the number of times that it was found.

    Args:
        grid: differences are rounded to parts of this, away from the interval's middle. A smaller one takes less time,
            and makes the interval wider by one part of it at each end at most.
    """
    threshold = -math.log(between("level", level, 0, 1) / 2)
    below = _lower({-each: count for each, count in counted.items()}, threshold, grid)
    return _lower(counted, threshold, grid), -below


def _lower(counted: Mapping[float, int], threshold: float, grid: int) -> float:
    counts: Counter[float] = Counter()
    for each, count in counted.items():
        counts[math.floor(within("difference", each, -1, 1) * grid) / grid] += count
    refuted, open_end = -1.0, 1.0
    for _ in range(_STEPS):
        middle = (refuted + open_end) / 2
        if log_e_of(counts, middle) >= threshold:
            refuted = middle
        else:
            open_end = middle
    return refuted
