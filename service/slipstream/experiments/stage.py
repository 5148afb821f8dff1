"""The stage that decides about experiments: one over all sidecars of a store.

As with rollouts, the experiment's row carries the sidecar that decides it, everything that it needs is in the store,
and each decision is one transaction. So whoever goes on after a crash comes to the same decision, and notes it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from slipstream.errors import RequestError, SlipstreamError
from slipstream.evaluation.verdicts import Verdicts
from slipstream.experiments.comparison import Comparison
from slipstream.experiments.decider import decide, harmed_by_b
from slipstream.experiments.findings import report
from slipstream.experiments.measuring import values
from slipstream.experiments.plan import COST, ExperimentPlan
from slipstream.experiments.switching import switch
from slipstream.isolation import Isolation
from slipstream.rollouts.counting import Counting, Evidences, UnitCounter, UnitOutcome, up_to_date
from slipstream.rollouts.decider import LaneSight
from slipstream.rollouts.lane import Lane
from slipstream.rollouts.scoring import LiveScorer
from slipstream.rollouts.values import Range
from slipstream.runs.budget import Budget
from slipstream.stages.context import Context, Stage
from slipstream.store import experiments, rollout_units, serving, sidecars
from slipstream.store.audit import Author
from slipstream.store.experiments import Change, Experiment, Verdict
from slipstream.store.rollout_units import OF_EXPERIMENTS
from slipstream.store.rollouts import DECIDER
from slipstream.store.states import ExperimentState

_log = structlog.get_logger(__name__)

_BEGINS_WITHIN = 600.0
"""Seconds in which the version has to come into the lane. One whose checkpoint is gone never does, and while it is
waited for no other experiment or rollout can begin."""


class Experiments:
    """Decides about the current experiment, whenever the agenda wakes it: once a second while there is one.

    Args:
        judging: the budget of calls of judges, which the training's scores share.

    Attributes:
        lane: the lane.
        within: the range of rewards.
        waits: why the version is not in the lane yet; None if it is, or there is no experiment.
        worker: the loop.
    """

    def __init__(self, context: Context, lane: Lane, isolation: Isolation, judging: Budget, verdicts: Verdicts) -> None:
        self._context = context
        self._database = context.database
        self._verdicts = verdicts
        self._scorer = LiveScorer(context, isolation, judging)
        self._counter = UnitCounter(context, self._scorer)
        self._evidences: Evidences[Comparison] = Evidences(context.database, OF_EXPERIMENTS)
        self.lane = lane
        self.within = Range(*context.settings.rewards.clip)
        self.waits: str | None = None
        self.worker = context.stages.add(Stage.EXPERIMENTS, self.step)

    async def aclose(self) -> None:
        """Close the calculators of live answers."""
        await self._scorer.aclose()

    async def step(self) -> bool:
        """Put the version into the lane, count units, and decide. Returns True when more may be to be done."""
        async with self._database.read() as session:
            experiment = await experiments.current(session)
        if experiment is None:
            self._evidences.forget()
            self.waits = None
            return False
        plan = ExperimentPlan.model_validate(experiment.plan)
        if not await self._is_mine(experiment):
            await self._leave_a_lane_that_failed(experiment, plan)
            return False
        if experiment.state is ExperimentState.PENDING:
            return await self._begin(experiment, plan)
        if await self._decide(experiment, plan):  # first what is known: scores may take their time
            return True
        more = await self._counter.step(self._counting(experiment, plan))
        return await self._decide(experiment, plan) or more

    async def comparison(self, experiment: Experiment, plan: ExperimentPlan) -> Comparison:
        """The evidence about an experiment with all units that are counted. Of the current one it is kept."""
        if experiment.ended_at is None:
            return await self._evidences.of(experiment.id, (experiment.id,), lambda: Comparison(plan))
        return await up_to_date(self._database, OF_EXPERIMENTS, experiment.id, Comparison(plan))

    async def report(self, experiment: Experiment, plan: ExperimentPlan, comparison: Comparison) -> dict[str, Any]:
        """The report on an experiment. Intervals take a second, so it is made in a thread, of a copy."""
        return await asyncio.to_thread(report, experiment, plan, deepcopy(comparison), self.within)

    async def carry_out(
        self, experiment: Experiment, change: Change, by: Author, *, switches: ExperimentPlan | None = None
    ) -> Experiment | None:
        """Carry out a decision, in one transaction.

        Args:
            switches: the plan of an experiment whose arm `b` gets the traffic by this decision.

        Returns:
            The experiment from then on; None if another decision came first.
        """
        now = self._context.clock()
        async with self._database.write() as session:
            if by is DECIDER:
                await sidecars.hold(session, self._context.membership.id)
            after = await experiments.carry_out(session, experiment, change, by, now)
            if after is not None and switches is not None:
                lane = after.lane_step, self._context.settings.serving.lane_url
                after = await switch(session, after, switches, lane, change.reason, change.evidence, by, now)
        if after is not None:
            self.told(after, change.verdict)
            if after.rollout_id is not None:
                self.told(after, Verdict.SWITCH)
                self._context.stages.wake(Stage.ROLLOUTS)
        return after

    def told(self, experiment: Experiment, verdict: Verdict) -> None:
        """Count and log a decision that is in the store, and have the workers go by it."""
        self._context.stages.wake(Stage.SERVING)
        self._context.metrics.experiment_decisions.labels(verdict).inc()
        _log.info(
            "experiment_decided",
            experiment=experiment.id,
            version=experiment.version,
            action=verdict,
            state=experiment.state,
            winner=experiment.winner,
            reason=experiment.reason,
        )

    async def refresh_gauges(self) -> None:
        """Bring the gauges that mirror experiments up to date."""
        metrics = self._context.metrics
        async with self._database.read() as session:
            counts = await experiments.counts(session)
            experiment = await experiments.current(session)
        for state, count in counts.items():
            metrics.experiments.labels(state).set(count)
        metrics.experiment_share.set(0.0 if experiment is None else experiment.share)
        comparison = None
        if experiment is not None and experiment.owner == self._context.membership.id:
            comparison = await self.comparison(experiment, ExperimentPlan.model_validate(experiment.plan))
        metrics.experiment_mean.clear()
        measured = {} if comparison is None else {**comparison.metrics, "primary": comparison.primary}
        for place, arm in enumerate("ab"):
            metrics.experiment_units.labels(arm).set(0 if comparison is None else comparison.units[place])
            metrics.experiment_evidence.labels(arm).set(0.0 if comparison is None else _log_e(comparison, arm))
            metrics.experiment_mean.labels(arm, "primary").set(0.0)
            for name, metric in measured.items():
                metrics.experiment_mean.labels(arm, name).set(metric.arms[place].mean or 0.0)

    async def _is_mine(self, experiment: Experiment) -> bool:
        mine = self._context.membership.id
        if experiment.owner == mine:
            return True
        async with self._database.write() as session:
            await sidecars.hold(session, mine)
            return await experiments.claim(session, experiment.id, mine)

    async def _begin(self, experiment: Experiment, plan: ExperimentPlan) -> bool:
        try:
            lane_step = await self.lane.place(experiment.version)
        except (SlipstreamError, OSError) as error:  # tried again when the agenda wakes this next
            if str(error) != self.waits:
                _log.warning("version_not_in_the_lane", version=experiment.version, reason=str(error))
            self.waits = str(error)
            if self._context.clock() - experiment.started_at < _BEGINS_WITHIN:
                return False
            reason = f"version {experiment.version} did not come into the lane within {_BEGINS_WITHIN:g} s: {error}"
            failed = Change(Verdict.FAIL, ExperimentState.FAILED, 0.0, reason, {})
            return await self.carry_out(experiment, failed, DECIDER) is not None
        self.waits = None
        begun = Change(
            Verdict.BEGIN,
            ExperimentState.RUNNING,
            plan.share,
            f"users are assigned: a share of {plan.share:g} to b",
            {},
            lane_step=lane_step,
            lane=self._context.settings.serving.lane_url,
        )
        await self.carry_out(experiment, begun, DECIDER)
        return True

    async def _decide(self, experiment: Experiment, plan: ExperimentPlan) -> bool:
        """Make the decision that is due. Returns whether there was one."""
        settled = await self._is_settled(
            experiment, plan
        )  # before the evidence is read: what is counted later is in it
        comparison = await self.comparison(experiment, plan)
        async with self._database.read() as session:
            served = await serving.current(session)
        sight = self.lane.seen(experiment, served)
        now = self._context.clock()
        made = decide(experiment, plan, comparison, sight, now, settled=settled)
        if made is None:
            return False
        made = replace(made, evidence=await self.report(experiment, plan, comparison))
        switches = None
        if made.winner == "b" and plan.decision == "switch_traffic":
            why_not = await self._why_not_switch(experiment, plan, comparison, served.killed)
            switches = plan if why_not is None else None
            if why_not is not None:
                made = replace(made, reason=f"{made.reason}; the traffic stays with production: {why_not}")
        await self.carry_out(experiment, made, DECIDER, switches=switches)
        return True

    async def _why_not_switch(
        self, experiment: Experiment, plan: ExperimentPlan, comparison: Comparison, killed: bool
    ) -> str | None:
        """The reason why arm `b`, which won, does not get the traffic by itself; None if it does."""
        if killed:
            return "the kill switch is on"
        if self._context.settings.rollouts.by_two:  # since a restart: it is refused at the start
            return "rollouts.approval is second_person"
        if harmed := harmed_by_b(plan, comparison):
            return f"b is proven worse by {', '.join(harmed)}"
        if plan.force:
            return None
        try:
            async with self._database.read() as session:
                await self._verdicts.required(session, experiment.version)
        except RequestError as refusal:
            return str(refusal)
        return None

    async def _is_settled(self, experiment: Experiment, plan: ExperimentPlan) -> bool:
        """Return whether the values of all units are final and counted."""
        since, begun = experiment.settling_at, experiment.begun_at
        now = self._context.clock()
        if since is None or begun is None or now < since + plan.grace:
            return False  # a request of the last second may still be on its way
        async with self._database.read() as session:
            version = experiment.version
            left = await rollout_units.uncounted(session, OF_EXPERIMENTS, experiment.id, version, begun, now, 1)
        return not left

    async def _leave_a_lane_that_failed(self, experiment: Experiment, plan: ExperimentPlan) -> None:
        """Go back although another sidecar decides: the breakers of this one's workers are known here alone."""
        async with self._database.read() as session:
            served = await serving.current(session)
        sight = self.lane.seen(experiment, served)
        if sight.failed is None:
            return
        comparison = await self.comparison(experiment, plan)
        failed, now = LaneSight(failed=sight.failed), self._context.clock()
        made = decide(experiment, plan, comparison, failed, now, settled=False)
        if made is not None and made.verdict is Verdict.FAIL:
            made = replace(made, evidence=await self.report(experiment, plan, comparison))
            await self.carry_out(experiment, made, DECIDER)

    def _counting(self, experiment: Experiment, plan: ExperimentPlan) -> Counting:
        assert experiment.begun_at is not None, "it has begun"
        of_unit = partial(_values, plan, self.within)
        version, begun, tokens = experiment.version, experiment.begun_at, COST in plan.metrics
        return Counting(OF_EXPERIMENTS, experiment.id, version, begun, plan, of_unit, tokens)


def _values(plan: ExperimentPlan, within: Range, outcome: UnitOutcome) -> Mapping[str, Any]:
    return {"measured": values(plan, within, outcome)}


def _log_e(comparison: Comparison, arm: str) -> float:
    primary = comparison.primary
    return (primary.a_better if arm == "a" else primary.b_better).log_e
