"""The decider: from an experiment, its evidence, the lane and the time to the next decision. Pure functions.

    running   the lane failed, another version in it, killed ─▶ fail, or stop
              ends by evidence, and enough is proven          ─▶ decide
              its time is over                                ─▶ settle: production answers all users
    settling  all units are counted: something is proven      ─▶ decide
                                     nothing is               ─▶ inconclude

No data is not success: without units nothing is proven, and the traffic stays with production.
"""

from __future__ import annotations

from slipstream.experiments.comparison import Comparison
from slipstream.experiments.plan import ExperimentPlan
from slipstream.rollouts.decider import LaneSight
from slipstream.store.experiments import Change, Experiment, Verdict, Winner
from slipstream.store.states import ExperimentState

_IN_WORDS: dict[Winner, str] = {
    "a": "a is better than b",
    "b": "b is better than a",
    "equal": "the difference is within the margin",
}


def decide(
    experiment: Experiment,
    plan: ExperimentPlan,
    comparison: Comparison,
    lane: LaneSight,
    now: float,
    *,
    settled: bool,
) -> Change | None:
    """Return the decision that is due, without its evidence; None if none is.

    Args:
        comparison: of the units that are counted.
        now: Unix seconds.
        settled: no unit's value is open any more.
    """

    def change(verdict: Verdict, state: ExperimentState, reason: str, winner: Winner | None = None) -> Change:
        return Change(verdict, state, 0.0, reason, {}, winner)

    winner = proven(plan, comparison)
    if experiment.state is ExperimentState.RUNNING:
        if lane.killed:
            return change(Verdict.STOP, ExperimentState.STOPPED, "the kill switch is on: no users are assigned")
        if (why := lane.failed) is not None:
            return change(Verdict.FAIL, ExperimentState.FAILED, f"the lane failed: {why}")
        if (other := lane.changed) is not None:
            return change(Verdict.FAIL, ExperimentState.FAILED, f"the lane serves another version: {other}")
        if plan.ends == "evidence" and winner is not None:
            return change(Verdict.DECIDE, ExperimentState.DECIDED, in_words(plan, winner), winner)
        if plan.duration is not None and now - (experiment.begun_at or 0.0) >= plan.duration:
            reason = f"{plan.duration:g} s are over: the last units' values become final"
            return change(Verdict.SETTLE, ExperimentState.SETTLING, reason)
    elif experiment.state is ExperimentState.SETTLING and settled:
        if winner is not None:
            return change(Verdict.DECIDE, ExperimentState.DECIDED, in_words(plan, winner), winner)
        reason = "; ".join(what_is_missing(plan, comparison))
        return change(Verdict.INCONCLUDE, ExperimentState.INCONCLUSIVE, reason)
    return None


def proven(plan: ExperimentPlan, comparison: Comparison) -> Winner | None:
    """Return the result that is proven by the primary metric, with the least number of units of each arm."""
    return comparison.primary.proven(plan.level) if min(comparison.units) >= plan.min_units else None


def in_words(plan: ExperimentPlan, winner: Winner) -> str:
    """A result that is proven, as a reason."""
    return f"{plan.decided_by}: {_IN_WORDS[winner]}, proven at the level {plan.level:g}"


def harmed_by_b(plan: ExperimentPlan, comparison: Comparison) -> list[str]:
    """The metrics but the primary one by which arm `b` is proven worse: all of them together at the level."""
    others = [metric for name, metric in comparison.metrics.items() if name != plan.decided_by]
    return [
        metric.measure.name
        for metric in others
        if metric.comparable and metric.a_better.proven(plan.level / len(others))
    ]


def what_is_missing(plan: ExperimentPlan, comparison: Comparison) -> list[str]:
    """The things that a decision by evidence lacks, in words; nothing once it has all."""
    found = [
        f"{plan.min_units - units} more units of {arm}"
        for arm, units in zip("ab", comparison.units, strict=True)
        if units < plan.min_units
    ]
    primary = comparison.primary
    if not primary.comparable:
        without = " and ".join(
            f"{each.without} of {each.without + each.units} of {arm}"
            for arm, each in zip("ab", primary.arms, strict=True)
        )
        found.append(
            f"{plan.decided_by}: {without} have an answer that does not say its tokens, so that arms cannot be "
            "compared; a stream says them with stream_options.include_usage"
        )
    elif primary.proven(plan.level) is None:
        results = "neither arm is proven better" + (", nor both equal" if primary.equal is not None else "")
        found.append(f"{plan.decided_by}: {results}")
    return found
