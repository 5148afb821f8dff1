"""Intervals by the bootstrap, resampled by session: what one user's session says of several pairs is no independent
evidence."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

_RESAMPLES = 500
_OUTSIDE = 0.025
"""Part of the resampled values beyond each end of an interval of 95%."""


def resampled(
    clusters: Sequence[T], statistic: Callable[[list[T]], dict[str, float]]
) -> dict[str, tuple[float, float]]:
    """The 95% interval of each value of a statistic (percentile bootstrap, B. Efron, 1979). The same clusters give the
    same intervals.

    Args:
        clusters: what is drawn with replacement.
        statistic: the values, by name, of what was drawn; a name may be missing.
    """
    drawn = random.Random(0)  # noqa: S311 - nothing is kept secret by it
    values: dict[str, list[float]] = {}
    for _ in range(_RESAMPLES):
        for name, value in statistic(drawn.choices(clusters, k=len(clusters))).items():
            values.setdefault(name, []).append(value)
    return {name: _ends(sorted(some)) for name, some in values.items()}


def _ends(values: Sequence[float]) -> tuple[float, float]:
    outside = int(_OUTSIDE * len(values))
    return values[outside], values[-1 - outside]
