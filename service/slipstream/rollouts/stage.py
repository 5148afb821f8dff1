"""The stage that decides about rollouts: one over all sidecars of a store.

The rollout's row carries the sidecar that decides it. Another one takes its place once that one is gone
(`sidecars.take_over` deletes its row). Everything that it needs is in the store, and each decision is one transaction,
so that whoever goes on after a crash, at any point, comes to the same decision and notes it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.errors import SlipstreamError
from slipstream.isolation import Isolation
from slipstream.rollouts.comparison import Comparison
from slipstream.rollouts.counting import Counting, Evidences, UnitCounter, UnitOutcome, up_to_date
from slipstream.rollouts.decider import LaneSight, decide
from slipstream.rollouts.findings import evidence
from slipstream.rollouts.guardrails import format_component
from slipstream.rollouts.lane import Lane
from slipstream.rollouts.plan import Plan
from slipstream.rollouts.scoring import LiveScorer
from slipstream.rollouts.values import Range, values
from slipstream.runs.budget import Budget
from slipstream.stages.context import Context, Stage
from slipstream.store import rollouts, serving, sidecars
from slipstream.store.audit import Author
from slipstream.store.rollout_units import OF_ROLLOUTS
from slipstream.store.rollouts import DECIDER, Change, Rollout, Verdict
from slipstream.store.states import RolloutState
from slipstream.tracing.catalogue import Attribute, SpanName
from slipstream.tracing.tracer import Past

_log = structlog.get_logger(__name__)


class Rollouts:
    """Decides about the current rollout, whenever the agenda wakes it: once a second while there is one.

    Attributes:
        worker: the loop.
        waits: why the version is not in the lane yet; None if it is, or there is no rollout.
    """

    def __init__(self, context: Context, lane: Lane, isolation: Isolation, judging: Budget) -> None:
        self._context = context
        self._database = context.database
        self._lane = lane
        self._scorer = LiveScorer(context, isolation, judging)
        self._counter = UnitCounter(context, self._scorer)
        self._evidences: Evidences[Comparison] = Evidences(context.database, OF_ROLLOUTS)
        self.waits: str | None = None
        self.worker = context.stages.add(Stage.ROLLOUTS, self.step)

    async def aclose(self) -> None:
        """Close the calculators of live answers."""
        await self._scorer.aclose()

    async def step(self) -> bool:
        """Put the version into the lane, count units, and decide. Returns True when more may be to be done."""
        async with self._database.read() as session:
            rollout = await rollouts.current(session)
        if rollout is None:
            self._evidences.forget()
            self.waits = None
            return False
        plan = Plan.model_validate(rollout.plan)
        if not await self._is_mine(rollout):
            await self._leave_a_lane_that_failed(rollout, plan)
            return False
        if rollout.state is RolloutState.PENDING:
            return await self._begin(rollout, plan)
        if await self._decide(rollout, plan):  # first what is known: scores may take their time
            return True
        more = await self._counter.step(self._counting(rollout, plan))
        return await self._decide(rollout, plan) or more

    async def _is_mine(self, rollout: Rollout) -> bool:
        mine = self._context.membership.id
        if rollout.owner == mine:
            return True
        async with self._database.write() as session:
            await sidecars.hold(session, mine)
            return await rollouts.claim(session, rollout.id, mine)

    async def _begin(self, rollout: Rollout, plan: Plan) -> bool:
        try:
            lane_step = await self._lane.place(rollout.version)
        except (SlipstreamError, OSError) as error:  # tried again when the agenda wakes this next
            if str(error) != self.waits:
                _log.warning("version_not_in_the_lane", version=rollout.version, reason=str(error))
            self.waits = str(error)
            return False
        self.waits = None
        comparison = await self._current(rollout, plan)
        begun = Change(
            Verdict.BEGIN,
            RolloutState.RUNNING,
            0,
            plan.steps[0],
            f"step 1 of {len(plan.steps)}: a share of {plan.steps[0]:g}",
            evidence(rollout, plan, comparison),
            lane_step=lane_step,
            lane=self._context.settings.serving.lane_url,
        )
        await self.carry_out(rollout, begun, DECIDER)
        return True

    async def _decide(self, rollout: Rollout, plan: Plan) -> bool:
        """Make the decision that is due. Returns whether there was one."""
        comparison = await self._current(rollout, plan)
        async with self._database.read() as session:
            served = await serving.current(session)
        promotes = not self._context.settings.rollouts.by_two
        sight = self._lane.seen(rollout, served)
        made = decide(rollout, plan, comparison, sight, self._context.clock(), promotes=promotes)
        if made is None:
            return False
        await self.carry_out(rollout, made, DECIDER)
        return True

    async def _leave_a_lane_that_failed(self, rollout: Rollout, plan: Plan) -> None:
        """Go back although another sidecar decides: the breakers of this one's workers are known here alone."""
        async with self._database.read() as session:
            served = await serving.current(session)
        sight = self._lane.seen(rollout, served)
        if sight.failed is None:
            return
        comparison = await self.comparison(rollout, plan)
        made = decide(rollout, plan, comparison, LaneSight(failed=sight.failed), self._context.clock())
        if made is not None:
            await self.carry_out(rollout, made, DECIDER)

    async def comparison(self, rollout: Rollout, plan: Plan) -> Comparison:
        """The evidence about a rollout with all units that are counted. Of the current one it is kept."""
        if rollout.ended_at is None:
            return await self._current(rollout, plan)
        return await up_to_date(self._database, OF_ROLLOUTS, rollout.id, Comparison(plan, rollout.promoted_at))

    async def _current(self, rollout: Rollout, plan: Plan) -> Comparison:
        name = rollout.id, rollout.promoted_at
        return await self._evidences.of(rollout.id, name, lambda: Comparison(plan, rollout.promoted_at))

    def _counting(self, rollout: Rollout, plan: Plan) -> Counting:
        assert rollout.begun_at is not None, "it has begun"
        rewards = self._context.settings.rewards
        of_unit = partial(_values, plan, Range(*rewards.clip), format_component(rewards))
        return Counting(OF_ROLLOUTS, rollout.id, rollout.version, rollout.begun_at, plan, of_unit)

    async def evidence_of(self, session: AsyncSession, rollout: Rollout) -> Mapping[str, Any]:
        """The evidence about a rollout now; about one that has ended, as of its last decision."""
        if rollout.ended_at is not None:
            return await rollouts.last_evidence(session, rollout.id)
        plan = Plan.model_validate(rollout.plan)
        return evidence(rollout, plan, await self._current(rollout, plan))

    async def carry_out(self, rollout: Rollout, change: Change, by: Author) -> Rollout | None:
        """Carry out a decision, in one transaction.

        Returns:
            The rollout from then on; None if another decision came first.
        """
        async with self._database.write() as session:
            if by is DECIDER:
                await sidecars.hold(session, self._context.membership.id)
            after = await rollouts.carry_out(session, rollout, change, by, self._context.clock())
        if after is not None:
            self.told(after, change.verdict)
        return after

    def told(self, rollout: Rollout, verdict: Verdict) -> None:
        """Count, log and trace a decision that is in the store, and have the workers go by it."""
        self._context.stages.wake(Stage.SERVING)
        self._context.metrics.rollout_decisions.labels(verdict).inc()
        _log.info(
            "rollout_decided",
            rollout=rollout.id,
            version=rollout.version,
            action=verdict,
            state=rollout.state,
            share=rollout.share,
            reason=rollout.reason,
        )
        now = self._context.clock()
        self._context.tracer.past(
            Past(
                SpanName.ROLLOUT,
                now,
                now,
                {
                    Attribute.ROLLOUT: rollout.id,
                    Attribute.VERSION: rollout.version,
                    Attribute.VERDICT: verdict.value,
                    Attribute.STATE: rollout.state.value,
                    Attribute.SHARE: rollout.share,
                },
            )
        )

    async def refresh_gauges(self) -> None:
        """Bring the gauges that mirror rollouts up to date."""
        metrics = self._context.metrics
        async with self._database.read() as session:
            counts = await rollouts.counts(session)
            rollout = await rollouts.current(session)
        for state, count in counts.items():
            metrics.rollouts.labels(state).set(count)
        metrics.rollout_share.set(0.0 if rollout is None else rollout.share)
        metrics.rollout_evidence.clear()
        if rollout is None or rollout.owner != self._context.membership.id:
            metrics.rollout_evidence.labels("objective").set(0)
            return
        comparison = await self.comparison(rollout, Plan.model_validate(rollout.plan))
        metrics.rollout_evidence.labels("objective").set(comparison.objective.better.log_e)
        for name, track in comparison.tracks.items():
            metrics.rollout_evidence.labels(name).set(track.harm.log_e)


def _values(plan: Plan, within: Range, form: str | None, outcome: UnitOutcome) -> Mapping[str, Any]:
    found = values(plan, within, outcome.unit, scores=outcome.scores, feedback=outcome.feedback, format_component=form)
    return found._asdict()
