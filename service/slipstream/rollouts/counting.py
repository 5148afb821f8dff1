"""Units whose values become final are counted, in the order of assignment, and the evidence that they make."""

from __future__ import annotations

import asyncio
from functools import partial

from slipstream.rollouts.comparison import Comparison
from slipstream.rollouts.guardrails import format_component
from slipstream.rollouts.plan import Plan
from slipstream.rollouts.scoring import LiveScorer
from slipstream.rollouts.values import Range, ended, ends_at, values
from slipstream.stages.context import Context
from slipstream.store import feedback_views, rollout_units, sidecars
from slipstream.store.database import Database
from slipstream.store.rollouts import Rollout

_BATCH = 200
"""Units counted in one transaction."""

_SCORED_BATCH = 20
"""The same where their answers are scored: judges take seconds, and decisions wait for the batch."""

_PAGE = 250
"""Counted units read at once: some thirty milliseconds of work, in which the training side does nothing else."""


class UnitCounter:
    """Writes the final values of units."""

    def __init__(self, context: Context, scorer: LiveScorer) -> None:
        self._context = context
        self._database = context.database
        self._scorer = scorer

    async def step(self, rollout: Rollout, plan: Plan) -> bool:
        """Count a batch. Returns True when more may be due."""
        assert rollout.begun_at is not None, "it has begun"
        now, batch = self._context.clock(), _SCORED_BATCH if plan.scores else _BATCH
        async with self._database.read() as session:
            waiting = await rollout_units.uncounted(session, rollout.id, rollout.version, rollout.begun_at, batch)
            over = ended(plan, waiting, now)
            calls = await rollout_units.calls_of(session, over, partial(ends_at, plan))
            ids = {call.id for some in calls.values() for call in some}
            said = await feedback_views.about_calls(session, ids) if ids else {}
        if not over:
            return False
        scores = await self._scorer.score(plan.scoring, calls) if plan.scores else dict.fromkeys(calls)
        rewards = self._context.settings.rewards
        within, form = Range(*rewards.clip), format_component(rewards)
        counted = []
        for unit in over:
            posted = [
                [one.reward for one in said.get(call.id, ()) if one.reward is not None] for call in calls[unit.unit]
            ]
            newest = [rewards_of_call[-1] for rewards_of_call in posted if rewards_of_call]
            of_unit = values(plan, within, unit, scores=scores[unit.unit], feedback=newest, format_component=form)
            counted.append((unit, of_unit))
        async with self._database.write() as session:
            await sidecars.hold(session, self._context.membership.id)
            await rollout_units.count(session, rollout.id, counted)
        return len(waiting) == len(over) == batch


class Evidences:
    """The comparison of the current rollout, kept while it is the same, and brought up to date from the store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._of: tuple[int, float | None] | None = None
        self._comparison: Comparison | None = None
        self._one_at_a_time = asyncio.Lock()  # the stage and the metrics both ask, and a unit counts once

    async def of(self, rollout: Rollout, plan: Plan) -> Comparison:
        """The comparison with all units that are counted."""
        name = rollout.id, rollout.promoted_at
        async with self._one_at_a_time:
            if self._comparison is None or self._of != name:
                self._of, self._comparison = name, Comparison(plan, rollout.promoted_at)
            return await _up_to_date(self._database, rollout, self._comparison)

    def forget(self) -> None:
        """There is no rollout."""
        self._of = self._comparison = None


async def comparison_of(database: Database, rollout: Rollout, plan: Plan) -> Comparison:
    """The comparison of any rollout, made from the store."""
    return await _up_to_date(database, rollout, Comparison(plan, rollout.promoted_at))


async def _up_to_date(database: Database, rollout: Rollout, comparison: Comparison) -> Comparison:
    while True:
        async with database.read() as session:
            units = await rollout_units.counted_after(session, rollout.id, comparison.last, _PAGE)
        comparison.add(units)
        if len(units) < _PAGE:
            return comparison
