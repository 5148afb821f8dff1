"""Claims about the treatment, and the evidence for them.

A claim is proven when all that contradicts it is refuted. Equality within a margin contradicts two statements, "worse
by the margin or more" and "better by the margin or more". Each is tested at the whole level, because at most one of
them is true (R. Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982): an
intersection-union test).
"""

from __future__ import annotations

import math
from enum import StrEnum

from slipstream.evidence.betting import EProcess
from slipstream.evidence.checks import between


class Claim(StrEnum):
    """A statement about the mean difference d of treatment less control."""

    BETTER = "better"
    """d > margin. With a negative margin: the treatment is not much worse."""
    WORSE = "worse"
    """d < -margin. With a negative margin: the treatment is not much better."""
    EQUAL = "equal"
    """-margin < d < margin."""


class Evidence:
    """Evidence for a claim, one difference at a time: in the order of assignment, if it is looked at in between.

    Args:
        claim: the statement.
        margin: its margin, in parts of the range of values: above -1 and below 1, for equality above 0.
        once: the differences are those of a set that is looked at as a whole. Then the evidence is that after all of
            them, which does not depend on their order; else the greatest so far, and what was proven stays proven.

    Raises:
        ValueError: the margin is outside of these bounds, or a difference is not in [-1, 1].
    """

    def __init__(self, claim: Claim, margin: float = 0.0, *, once: bool = False) -> None:
        self._once = once
        self.processes: tuple[tuple[int, EProcess], ...]
        if claim is Claim.EQUAL:
            between("margin", margin, 0, 1)
            self.processes = (1, EProcess(-margin)), (-1, EProcess(-margin))
        else:
            self.processes = ((1 if claim is Claim.BETTER else -1, EProcess(margin)),)

    def add(self, difference: float) -> None:
        """Take the next difference into account."""
        for sign, process in self.processes:
            process.add(sign * difference)

    @property
    def log_e(self) -> float:
        """Natural logarithm of the evidence."""
        return min(self.log_e_of(process) for _, process in self.processes)

    def log_e_of(self, process: EProcess) -> float:
        """Natural logarithm of the evidence of one of the `processes`."""
        return process.log_e if self._once else process.peak

    def proven(self, level: float) -> bool:
        """Return whether the evidence has reached 1 / `level`; that of a false claim ever does with probability
        `level` at most.

        Raises:
            ValueError: `level` is not above 0 and below 1.
        """
        return self.log_e >= -math.log(between("level", level, 0, 1))
