"""Scores of answers that users got: production's and the version's alike, by the same calculators.

The calculators see each answer by itself. In the place of production's answer there is an empty one, for both arms, so
that nothing can compare the version with what it is to be compared with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import structlog

from slipstream.errors import ScoringError
from slipstream.isolation import Isolation
from slipstream.memory.parsing import Share
from slipstream.rewards import RewardModel, RewardsSettings
from slipstream.rewards.calculator import NoBasis
from slipstream.rollouts.guardrails import comparable, lacks_references
from slipstream.rollouts.plan import LiveScoring
from slipstream.rollouts.values import FAILED, is_drawn
from slipstream.runs.budget import Budget
from slipstream.stages.context import Context
from slipstream.store import budget, feedback_views, live_scores, read_models
from slipstream.store.live_scores import LiveScore
from slipstream.store.rollout_units import StoredCall
from slipstream.trajectory import Feedback, PolicyCall, Run, Task

_log = structlog.get_logger(__name__)

MOST_CALLS = 20
"""Answers of a unit that are scored, its first ones: a session of hundreds would spend the budget of all others."""

_AT_ONCE = 8
"""Tasks that are read and scored side by side: a judge takes seconds."""


class LiveScorer:
    """Scores the answers of units whose values are to become final.

    Args:
        judging: the budget of calls of judges, which the training's scores share.
    """

    def __init__(self, context: Context, isolation: Isolation, judging: Budget) -> None:
        self._context = context
        self._isolation = isolation
        self._judging = judging
        self._model: tuple[RewardsSettings, RewardModel] | None = None

    async def aclose(self) -> None:
        """Close the calculators."""
        if self._model is not None:
            await self._model[1].aclose()
            self._model = None

    async def score(
        self, plan: LiveScoring, units: Mapping[str, Sequence[StoredCall]]
    ) -> dict[str, list[LiveScore] | None]:
        """Score units; one that was scored before a restart keeps its scores.

        Returns:
            The scores of each unit; None for one that is not scored.
        """
        drawn = {unit: calls[:MOST_CALLS] for unit, calls in units.items() if is_drawn(unit, plan.share)}
        async with self._context.database.read() as session:
            there = await live_scores.of_calls(session, {call.id for calls in drawn.values() for call in calls})
        left = {unit: [call for call in calls if call.id not in there] for unit, calls in drawn.items()}
        taken = await self._affordable(plan, left, {unit for unit, calls in drawn.items() if calls and not left[unit]})
        new = await self._scored(plan, [call for unit in taken for call in left[unit]])
        if new:
            async with self._context.database.write() as session:
                await live_scores.save(session, new, self._context.clock())
        scores = {**there, **new}
        return {
            unit: [scores[call.id] for call in drawn[unit] if call.id in scores] if unit in taken else None
            for unit in units
        }

    async def _affordable(
        self, plan: LiveScoring, units: Mapping[str, Sequence[StoredCall]], scored: Collection[str]
    ) -> list[str]:
        """The units for which there is room in the budgets of the hour, which they spend.

        A unit is taken whole while there is any room, so that its own number of calls does not decide about it.

        Args:
            units: the calls of each that are to be scored.
            scored: those whose calls all have scores.
        """
        model = self._calculators(plan)[0]
        limit, taken, calls = plan.calls_per_hour, [], 0
        now = self._context.clock()
        async with self._context.database.write() as session:
            spent = (await budget.spent(session, "live", now)).requests
            judged = model.judges > 0 and self._judging.limited
            for unit, some in units.items():
                if unit not in scored:  # also one that failed without an answer: no outcome decides who counts
                    if limit is not None and spent + calls >= limit:
                        continue
                    if judged and not await self._judging.room(session, 1, now):
                        continue
                taken.append(unit)
                calls += len(some)
                if judged:
                    await self._judging.spend(session, len(some) * model.judges, 0, now)
            if calls:
                await budget.spend(session, "live", calls, 0, now)
                await budget.forget(session, now)
        if left_out := len(units) - len(taken):
            self._context.metrics.live_scores.labels("over_budget").inc(left_out)
        return taken

    async def _scored(self, plan: LiveScoring, calls: Sequence[StoredCall]) -> dict[int, LiveScore]:
        by_task: dict[str, list[StoredCall]] = {}
        for call in calls:
            by_task.setdefault(call.task_id, []).append(call)
        async with self._context.database.read() as session:
            sizes = await read_models.sizes(session, by_task)
            said = await feedback_views.about_calls(session, {call.id for call in calls})
        room, at_once = self._context.parsing.room(Share.JUDGED), asyncio.Semaphore(_AT_ONCE)

        async def of_task(task_id: str) -> dict[int, LiveScore]:
            if sizes[task_id] > room:
                return {call.id: LiveScore(None, {}) for call in by_task[task_id]}
            async with at_once, self._context.parsing.held(sizes[task_id], Share.JUDGED):
                async with self._context.database.read() as session:
                    found = await read_models.tasks(session, [task_id])
                if task_id not in found:  # it was deleted
                    return {}
                return {
                    call.id: await self._score(plan, picture(found[task_id], call, said.get(call.id, ())))
                    for call in by_task[task_id]
                }

        scored = await asyncio.gather(*map(of_task, by_task))
        return {call: score for some in scored for call, score in some.items()}

    async def _score(self, plan: LiveScoring, run: Run) -> LiveScore:
        rewards, model = self._calculators(plan)
        if lacks_references(rewards, run.metadata):
            return self._counted("no_basis", LiveScore(None, {}))
        try:
            reward = await model.score(run)
        except NoBasis:
            return self._counted("no_basis", LiveScore(None, {}))
        except ScoringError as error:  # its reason may quote the answer
            _log.debug("live_scoring_failed", task_id=run.task.task_id, reason=str(error))
            return self._counted("failed", LiveScore(None, {FAILED: True}))
        return self._counted("scored", LiveScore(reward.value, reward.breakdown))

    def _counted(self, outcome: str, score: LiveScore) -> LiveScore:
        self._context.metrics.live_scores.labels(outcome).inc()
        return score

    def _calculators(self, plan: LiveScoring) -> tuple[RewardsSettings, RewardModel]:
        """The calculators that can compare two versions, made when they are first needed."""
        rewards = comparable(self._context.settings.rewards, references=plan.references)
        if self._model is None or self._model[0] != rewards:
            self._model = rewards, RewardModel(rewards, self._context.metrics, self._isolation)
        return self._model


def picture(task: Task, call: StoredCall, said: Sequence[Feedback]) -> Run:
    """One answer that a user got, as a calculator sees it.

    Args:
        task: with its calls.
        said: the feedback about the answer.
    """
    place, answered = next((at, each) for at, each in enumerate(task.calls) if each.position == call.position)
    hidden = tuple(replace(each, answer={}, variant=None) for each in task.calls)
    return Run(
        task=replace(task, calls=hidden),
        group_id=f"live.{call.id}",
        run_id=0,
        calls=(PolicyCall(answered.request, answered.answer, answered.msg_id or "", answered.latency),),
        production=hidden[place],
        feedback=tuple(said),
    )
