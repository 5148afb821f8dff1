"""The traffic goes to arm `b`: by a rollout of its version that is promoted at once.

So what holds for promoted versions holds for it: 5% of the units stay with production as control, detectors watch it,
and it goes back by `slipstream rollout abort`. For the stream of tested versions it is a promotion without proof,
because an experiment has a level of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.errors import SlipstreamError
from slipstream.evidence import version_level
from slipstream.experiments.plan import ExperimentPlan, is_reward
from slipstream.rollouts.plan import FEEDBACK, LARGEST_SHARE, Plan
from slipstream.store import experiments, rollout_units, rollouts
from slipstream.store.audit import Author
from slipstream.store.experiments import Experiment
from slipstream.store.rollouts import Change, Verdict
from slipstream.store.states import RolloutState


def rollout_plan(plan: ExperimentPlan) -> Plan:
    """The plan by which the version is watched from then on: the objective is the primary metric, if it can be one."""
    primary = plan.decided_by
    return Plan(
        steps=[LARGEST_SHARE],
        grace=plan.grace,
        longest_session=plan.longest_session,
        objective=primary if is_reward(primary) else FEEDBACK,
        ranges=plan.ranges,
        level=plan.level,
        scoring=plan.scoring,
    )


async def switch(
    session: AsyncSession,
    experiment: Experiment,
    plan: ExperimentPlan,
    lane: tuple[int | None, str | None],
    reason: str,
    evidence: Mapping[str, Any],
    by: Author,
    now: float,
) -> Experiment:
    """Promote the version of arm `b`, in the transaction of the decision that ended the experiment, or a later one.

    Args:
        lane: the step that the lane has to show, and its base URL.

    Raises:
        SlipstreamError: another decision came first.
    """
    promoted = rollout_plan(plan)
    tested, promotions = await rollouts.stream(session)
    level = version_level(promoted.level, tested + 1, promotions)
    await rollout_units.begin_anew(session, experiment.version)
    opened = await rollouts.open_(session, experiment.version, promoted.model_dump(mode="json"), level, by, now)
    begun = Change(
        Verdict.BEGIN, RolloutState.RUNNING, 0, LARGEST_SHARE, reason, evidence, lane_step=lane[0], lane=lane[1]
    )
    running = await rollouts.carry_out(session, opened, begun, by, now)
    assert running is not None, "it was opened in this transaction"
    done = Change(Verdict.PROMOTE, RolloutState.PROMOTED, 0, LARGEST_SHARE, reason, evidence)
    await rollouts.carry_out(session, running, done, by, now)
    after = await experiments.switched(session, experiment, opened.id, reason, by, now)
    if after is None:
        raise SlipstreamError(f"experiment {experiment.id}: another decision came first")
    return after
