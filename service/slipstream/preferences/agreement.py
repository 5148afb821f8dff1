"""Agreement between annotators: Krippendorff's alpha."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import permutations
from typing import NamedTuple


class Agreement(NamedTuple):
    """Agreement of those who judged the same things.

    Attributes:
        alpha: 1 for full agreement, 0 for that of chance, below it for less; None if it is not defined: nothing was
            judged twice, or all judgements are the same.
        units: things that were judged by two or more.
    """

    alpha: float | None
    units: int


def agreement(units: Iterable[Sequence[Hashable]]) -> Agreement:
    """Krippendorff's alpha for nominal data, of any number of annotators and with judgements missing.

    One minus the disagreement that was observed, in parts of the one that is expected by chance. Both come from the
    coincidences: each ordered pair of judgements of one unit with m judgements counts 1 / (m - 1). After
    K. Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C.

    Args:
        units: the judgements of each thing; one with fewer than two is left out.
    """
    coincidences: Counter[tuple[Hashable, Hashable]] = Counter()
    several = [unit for unit in units if len(unit) > 1]
    for unit in several:
        for pair in permutations(unit, 2):
            coincidences[pair] += 1 / (len(unit) - 1)  # type: ignore[assignment]
    totals: Counter[Hashable] = Counter()
    for (one, _), weight in coincidences.items():
        totals[one] += weight
    count = sum(totals.values())
    observed = sum(weight for (one, other), weight in coincidences.items() if one != other)
    expected = count**2 - sum(total**2 for total in totals.values())
    if not several or len(totals) < 2:
        return Agreement(None, len(several))
    return Agreement(1 - (count - 1) * observed / expected, len(several))
