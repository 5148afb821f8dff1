"""The decider: from a rollout, its evidence, the lane and the time to the next decision. Pure functions.

    harm proven, the lane failed, another version in it ─▶ roll back, from each state
    promoted: a detector's alarm                        ─▶ roll back
    paused, killed                                      ─▶ nothing else
    the step's time is not over                         ─▶ nothing yet
    something is missing                                ─▶ hold, and say what
    the last step, better is proven                     ─▶ promote
    else                                                ─▶ advance

A decision latches: evidence that was once reached stays, and a rollout that has ended is decided no more. No data is
not success: without units nothing is proven and each step holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from slipstream.rollouts.comparison import Comparison
from slipstream.rollouts.findings import evidence, share_of_both
from slipstream.rollouts.plan import LARGEST_SHARE, Plan
from slipstream.store.rollouts import Change, Rollout, Verdict
from slipstream.store.states import RolloutState


@dataclass(frozen=True, slots=True)
class LaneSight:
    """The lane, as it is seen at the moment of a decision.

    Attributes:
        failed: why users are not sent to it any more, if its circuit breaker has opened; else None.
        changed: what it serves in the place of the rollout's version; None if it serves that.
        killed: the kill switch is on.
    """

    failed: str | None = None
    changed: str | None = None
    killed: bool = False


def decide(
    rollout: Rollout, plan: Plan, comparison: Comparison, lane: LaneSight, now: float, *, promotes: bool = True
) -> Change | None:
    """Return the decision that is due, or None if none is.

    Args:
        comparison: of the units that are counted.
        now: Unix seconds.
        promotes: a promotion needs no person.
    """
    if rollout.ended_at is not None or rollout.begun_at is None:
        return None
    if reason := _reason_to_roll_back(rollout, comparison, lane):
        return change(rollout, plan, comparison, Verdict.ROLL_BACK, RolloutState.ROLLED_BACK, reason, share=0.0)
    if rollout.state not in (RolloutState.RUNNING, RolloutState.HOLDING):
        return None
    if lane.killed:
        return _hold(rollout, plan, comparison, "the kill switch is on: no users are assigned")
    if now - (rollout.step_at or 0.0) < plan.min_time:
        return None
    if missing := what_is_missing(rollout, plan, comparison):
        return _hold(rollout, plan, comparison, "; ".join(missing))
    if plan.approval == "by_hand":
        return _hold(rollout, plan, comparison, "nothing is missing: it waits to be advanced or promoted by hand")
    if _is_last(rollout, plan) and not promotes:
        return _hold(rollout, plan, comparison, "better is proven: it waits to be promoted by two persons")
    if _is_last(rollout, plan):
        reason = f"better is proven at the level {rollout.level:.3g}"
        return change(
            rollout, plan, comparison, Verdict.PROMOTE, RolloutState.PROMOTED, reason, share=LARGEST_SHARE, proven=True
        )
    return advanced(rollout, plan, comparison)


def advanced(rollout: Rollout, plan: Plan, comparison: Comparison) -> Change:
    """The decision to go on to the next step."""
    step = rollout.step + 1
    reason = f"step {step + 1} of {len(plan.steps)}: a share of {plan.steps[step]:g}"
    return change(
        rollout, plan, comparison, Verdict.ADVANCE, RolloutState.RUNNING, reason, step=step, share=plan.steps[step]
    )


def change(
    rollout: Rollout,
    plan: Plan,
    comparison: Comparison,
    verdict: Verdict,
    state: RolloutState,
    reason: str,
    *,
    step: int | None = None,
    share: float | None = None,
    proven: bool = False,
) -> Change:
    """A decision with its evidence; the step and the share stay as they are unless they are given."""
    return Change(
        verdict,
        state,
        rollout.step if step is None else step,
        rollout.share if share is None else share,
        reason,
        evidence(rollout, plan, comparison),
        proven=proven,
    )


def what_is_missing(rollout: Rollout, plan: Plan, comparison: Comparison) -> list[str]:
    """The things that the next step lacks but time, in words; nothing for one that may go on."""
    control, treated = comparison.since(rollout.step_at or 0.0)
    found = [
        f"{plan.min_units - units} more units of {arm} in this step"
        for arm, units in (("control", control), ("treatment", treated))
        if units < plan.min_units
    ]
    if plan.advance == "not_worse":
        found += [
            f"{name}: a loss of {track.measure.margin:g} or more is not refuted"
            for name, track in comparison.tracks.items()
            if not track.not_worse.proven(plan.level)
        ]
    if _is_last(rollout, plan) and not is_proven(rollout, comparison):
        found.append(f"{plan.objective}: better is not proven")
    return found


def is_proven(rollout: Rollout, comparison: Comparison) -> bool:
    """Return whether the version is proven better, at the level of its test."""
    return comparison.objective.better.proven(rollout.level)


def units_until(rollout: Rollout, plan: Plan, comparison: Comparison) -> int:
    """Return the units, of both arms together, until the step has its least number, if none is late."""
    share = share_of_both(rollout, plan)
    control, treated = comparison.since(rollout.step_at or 0.0)
    return max(
        math.ceil(max(0, plan.min_units - treated) / share), math.ceil(max(0, plan.min_units - control) / (1 - share))
    )


def _hold(rollout: Rollout, plan: Plan, comparison: Comparison, reason: str) -> Change | None:
    """Hold, which is decided once: what is missing meanwhile is shown with the rollout."""
    if rollout.state is RolloutState.HOLDING:
        return None
    return change(rollout, plan, comparison, Verdict.HOLD, RolloutState.HOLDING, reason)


def _is_last(rollout: Rollout, plan: Plan) -> bool:
    return rollout.step >= len(plan.steps) - 1


def _reason_to_roll_back(rollout: Rollout, comparison: Comparison, lane: LaneSight) -> str | None:
    if lane.failed is not None:
        return f"the lane failed: {lane.failed}"
    if lane.changed is not None:
        return f"the lane serves another version: {lane.changed}"
    if comparison.harmed:
        return f"harm is proven: {', '.join(comparison.harmed)}"
    if rollout.state is RolloutState.PROMOTED and comparison.alarmed:
        return f"worse since the promotion: {', '.join(comparison.alarmed)}"
    return None
