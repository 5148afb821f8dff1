"""Rewards that nobody calculates: a constant, and what was posted as feedback."""

from __future__ import annotations

from slipstream.errors import ScoringError
from slipstream.rewards.calculator import Number, PlainCalculator
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run


class NoFeedback(ScoringError):
    """Nobody said anything about the answer in time: no error of the calculator's."""


@calculator("constant")
class Constant(PlainCalculator):
    """The same value for every run."""

    value: Number

    def calculate(self, run: Run) -> float:
        return self.value


@calculator("feedback")
class PostedFeedback(PlainCalculator):
    """The newest reward posted for the policy's own answer; how long to wait for it is `rewards.grace`."""

    default: Number | None = None

    def calculate(self, run: Run) -> float:
        posted = [feedback.reward for feedback in run.feedback if feedback.reward is not None]
        if posted:
            return posted[-1]
        if self.default is None:
            raise NoFeedback("no feedback within grace, and no default")
        return self.default
