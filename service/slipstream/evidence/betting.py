"""An e-process against "the mean difference is at most a margin", by betting.

Source: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", Journal of the Royal
Statistical Society B 86 (2024), arXiv:2010.09686: the capital process of its section on betting and martingales, with
a fixed mixture of constant bets.

For differences d_i in [-1, 1], with y_i = (d_i + 1) / 2 and m = (1 + margin) / 2,

    E_n = 1/K sum_k prod_{i <= n} (1 + kappa_k (y_i / m - 1)).

If each difference has, given those before it, a mean of at most the margin, each factor has a mean of at most 1, so E
is a non-negative supermartingale that begins at 1. By Ville's inequality it ever reaches 1/a with probability at most
a. The differences need not be independent nor alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import mul

from slipstream.evidence.checks import between, within

BETS = tuple(0.01 * 95 ** (k / 15) for k in range(16))
"""Parts of the capital that are bet: geometric from 0.01, for small differences, to 0.95, for large ones."""


class EProcess:
    """Evidence against "the mean difference is at most `margin`", one difference at a time.

    `log_e` is the natural logarithm of E, `peak` the greatest that it has been: a decision does not fall back.

    Raises:
        ValueError: `margin` is not above -1 and below 1, or a difference is not in [-1, 1].
    """

    def __init__(self, margin: float) -> None:
        self._mean = (1 + between("margin", margin, -1, 1)) / 2
        self.logs = [0.0] * len(BETS)  # of each bet's capital: no number of differences overflows it
        self.count = 0
        self.log_e = self.peak = 0.0

    def add(self, difference: float) -> None:
        """Bet on the next difference, in the order of assignment."""
        factors = log_factors(within("difference", difference, -1, 1), self._mean)
        self.logs = [log + factor for log, factor in zip(self.logs, factors, strict=True)]
        self.count += 1
        self.log_e = log_mean(self.logs)
        self.peak = max(self.peak, self.log_e)


def log_e_of(counts: Mapping[float, int], margin: float) -> float:
    """The logarithm of E after differences in any order, which E does not depend on.

    Args:
        counts: each difference, in [-1, 1], with the number of times that it was found.
        margin: above -1 and below 1.
    """
    mean = (1 + margin) / 2
    factors = [log_factors(difference, mean) for difference in counts]
    of_bets = zip(*factors, strict=True) if factors else [()] * len(BETS)
    return log_mean([math.fsum(map(mul, of_bet, counts.values())) for of_bet in of_bets])


def log_factors(difference: float, mean: float) -> list[float]:
    """The logarithm of what a difference multiplies each bet's capital by.

    Args:
        difference: in [-1, 1].
        mean: the margin, as (1 + margin) / 2.
    """
    excess = (difference + 1) / 2 / mean - 1
    return [math.log1p(bet * excess) for bet in BETS]


def log_mean(logs: list[float]) -> float:
    """Logarithm of the mean of numbers that are given by their logarithms."""
    greatest = max(logs)
    return greatest + math.log(math.fsum(math.exp(log - greatest) for log in logs) / len(logs))
