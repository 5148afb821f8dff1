"""Detection of a difference that begins later, in a comparison that has no end.

Source: J. Shin, A. Ramdas and A. Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
arXiv:2203.03532: the e-detector of Shiryaev and Roberts, which sums e-processes that begin at each difference.
"""

from __future__ import annotations

import math

from slipstream.evidence.betting import BETS, log_factors, log_mean
from slipstream.evidence.checks import between, within


class Detector:
    """An e-detector for a mean difference that rises above `margin`, one difference at a time.

    An e-process loses capital for as long as nothing is wrong, and has to win it back when something is. A detector
    begins again at each difference. It is begun anew after an alarm.

    Args:
        margin: above -1 and below 1.
        run_length: above 1. While no mean difference is above the margin, the mean number of differences until an
            alarm is at least this.

    Raises:
        ValueError: an argument is outside of its bounds, or a difference is not in [-1, 1].
    """

    def __init__(self, margin: float, run_length: float) -> None:
        self._mean = (1 + between("margin", margin, -1, 1)) / 2
        self._threshold = math.log(between("run_length", run_length, 1, math.inf))
        self._logs = [-math.inf] * len(BETS)

    def add(self, difference: float) -> bool:
        """Take the next difference into account; true if the alarm is given at it."""
        factors = log_factors(within("difference", difference, -1, 1), self._mean)
        # Of log(1 + M), which is near log M where that is large, so that no M overflows.
        self._logs = [
            max(log, 0.0) + math.log1p(math.exp(-abs(log))) + factor
            for log, factor in zip(self._logs, factors, strict=True)
        ]
        return log_mean(self._logs) >= self._threshold
