"""Units as values in [0, 1], one for each thing that is compared.

A value is None only by a reason that no arm decides: the unit was not drawn to be scored, `capture.rate` leaves it out,
the hour's budget was spent, or its tasks give the calculators no basis. Whatever an arm can cause has a value:

- An answer that a calculator failed on has the lowest.
- A unit of which no answer is stored has the lowest: it failed, or its user left before an answer's end.
- A unit without feedback has the middle of the range, which says nothing. Left out, units would be compared by who
  speaks up, which depends on the answer; as it is, a version that gets fewer thumbs down is better by as much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.rollouts.plan import Plan
from slipstream.store.live_scores import LiveScore
from slipstream.store.rollout_units import AssignedUnit, UnitValues

NEUTRAL = 0.5
"""Value of the feedback of a unit without any."""

FAILED = "error"
"""Key in the breakdown of a score that a calculator failed to give."""


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a value: of rewards and feedback it is `rewards.clip`."""

    low: float
    high: float

    def part(self, value: float) -> float:
        """The value in parts of the range, within it."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


def range_of(component: str | None, ranges: Mapping[str, Sequence[float]], within: Range) -> Range:
    """The range of a component of the reward, or of the whole one.

    Args:
        ranges: of the components that are compared. A component has the range of rewards in a comparison that was begun
            when plans had none: its values are to be measured alike until its end.
        within: the range of rewards.
    """
    return within if component is None or component not in ranges else Range(*ranges[component])


class Waits(Protocol):
    """A plan, as far as it says when the value of a unit is final."""

    @property
    def grace(self) -> float: ...

    @property
    def longest_wait(self) -> float: ...


def ends_at(plan: Waits, unit: AssignedUnit) -> float:
    """Return the time at which the value of a unit is final, in Unix seconds."""
    return min(unit.last_at + plan.grace, unit.first_at + plan.longest_wait)


def ended(plan: Waits, units: Sequence[AssignedUnit], now: float) -> list[AssignedUnit]:
    """The units whose values are final, up to the first of which it is not: that one holds back those after it."""
    found = []
    for unit in units:
        if ends_at(plan, unit) > now:
            break
        found.append(unit)
    return found


def is_drawn(unit: str, share: float) -> bool:
    """Return whether the answers of a unit are scored: by a hash that has nothing to do with its arm's."""
    drawn = int.from_bytes(hashlib.sha256(f"scored:{unit}".encode()).digest()[:8], "big")
    return drawn < share * 2**64


def values(
    plan: Plan,
    within: Range,
    unit: AssignedUnit,
    *,
    scores: Sequence[LiveScore] | None,
    feedback: Sequence[float],
    format_component: str | None,
) -> UnitValues:
    """The values of a unit.

    Args:
        within: the range of rewards and feedback.
        scores: of its answers; None if they are not scored.
        feedback: the newest reward of each of its answers that has one.
        format_component: the one that the breakdowns have the calculator `format` by.
    """
    bound = None if plan.guardrails.latency is None else plan.guardrails.latency.bound
    late = bound is not None and unit.first_byte > bound
    of_scores = Scored(within, plan.ranges, scores, sampled=unit.sampled)
    return UnitValues(
        failure=float(unit.failures > 0),
        latency=float(late),
        format=of_scores.mean(format_component) if format_component else None,
        reward=of_scores.mean(None),
        feedback=said(within, feedback),
        component=of_scores.mean(plan.component) if plan.component else None,
    )


def said(within: Range, feedback: Sequence[float]) -> float:
    """The value of what was said about the answers of a unit."""
    return sum(map(within.part, feedback)) / len(feedback) if feedback else NEUTRAL


class Scored:
    """The scores of one unit.

    Args:
        within: the range of rewards.
        ranges: those of components.
        scores: of its answers; None if they are not scored.
        sampled: `capture.rate` takes its calls.
    """

    def __init__(
        self,
        within: Range,
        ranges: Mapping[str, Sequence[float]],
        scores: Sequence[LiveScore] | None,
        *,
        sampled: bool,
    ) -> None:
        self._within = within
        self._ranges = ranges
        self._scores = scores
        self._sampled = sampled

    def mean(self, component: str | None) -> float | None:
        """The mean of the reward, or of one component, over the answers that have it."""
        if self._scores is None:
            return None
        if not self._scores:
            return 0.0 if self._sampled else None
        found = [value for score in self._scores if (value := self._of(score, component)) is not None]
        return sum(found) / len(found) if found else None

    def _of(self, score: LiveScore, component: str | None) -> float | None:
        if FAILED in score.breakdown:
            return 0.0
        value = score.value if component is None else score.breakdown.get(component)
        return None if value is None else range_of(component, self._ranges, self._within).part(value)
