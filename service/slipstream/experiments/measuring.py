"""Metrics of an experiment: units as values in [0, 1], and which way each is better.

A value is None only by a reason that no arm decides, as in `rollouts.values`. There is one exception: an answer says
how many tokens it took, or does not, as its server likes. A unit with an answer that does not say has no cost, and
where that is more than a few units of an arm, costs are not compared (`comparison.Metric.comparable`).
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.experiments.plan import COST, FAILURE, LATENCY, ExperimentPlan, component_of, is_reward
from slipstream.rollouts.counting import UnitOutcome
from slipstream.rollouts.guardrails import Measure
from slipstream.rollouts.values import Range, Scored, range_of, said

_LESS_IS_BETTER = (FAILURE, LATENCY, COST)


def measures(plan: ExperimentPlan) -> list[Measure]:
    """The metrics of a plan as measures; the margin is the primary one's."""
    return [
        Measure(
            metric,
            metric,
            -1 if metric in _LESS_IS_BETTER else 1,
            plan.margin if metric == plan.decided_by else 0.0,
        )
        for metric in plan.metrics
    ]


def scale_of(plan: ExperimentPlan, metric: str, within: Range) -> tuple[float, float, str]:
    """The least value of a metric, the width of its range, and its unit: to show values as people know them."""
    match metric:
        case "latency":
            return 0.0, plan.latency_bound, "s"
        case "cost":
            return 0.0, float(plan.token_bound), "tokens"
        case "failure":
            return 0.0, 1.0, "part of the units"
    found = range_of(component_of(metric), plan.ranges, within)
    return found.low, found.high - found.low, "reward"


def values(plan: ExperimentPlan, within: Range, outcome: UnitOutcome) -> dict[str, float | None]:
    """The value of each metric for a unit. Of one that `capture.rate` leaves out it has those alone that there are.

    Args:
        within: the range of rewards and feedback.
    """
    measured = {metric: _value(plan, metric, within, outcome) for metric in plan.metrics}
    if outcome.unit.sampled or outcome.tokens or outcome.scores:
        return measured
    return {metric: value for metric, value in measured.items() if value is not None}


def _value(plan: ExperimentPlan, metric: str, within: Range, outcome: UnitOutcome) -> float | None:
    unit = outcome.unit
    if is_reward(metric):
        return Scored(within, plan.ranges, outcome.scores, sampled=unit.sampled).mean(component_of(metric))
    match metric:
        case "failure":
            return float(unit.failures > 0)
        case "latency":
            return min(unit.first_byte / plan.latency_bound, 1.0)
        case "cost":
            return _cost(outcome.tokens, plan.token_bound, sampled=unit.sampled)
    return said(within, outcome.feedback)


def _cost(tokens: Sequence[int | None] | None, bound: int, *, sampled: bool) -> float | None:
    """The tokens of all answers of a unit, in parts of the bound.

    A unit of which no answer is stored has the greatest, as it has the lowest reward: a failure must not look cheap.
    """
    if not tokens:
        return 1.0 if sampled else None
    known = [each for each in tokens if each is not None]
    return min(sum(known) / bound, 1.0) if len(known) == len(tokens) else None
