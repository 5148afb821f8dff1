"""Units whose values become final are counted, in the order of assignment, and the evidence that they make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from slipstream.rollouts.plan import LiveScoring
from slipstream.rollouts.scoring import LiveScorer
from slipstream.rollouts.values import Waits, ended, ends_at
from slipstream.stages.context import Context
from slipstream.store import answer_tokens, feedback_views, rollout_units, sidecars
from slipstream.store.database import Database
from slipstream.store.live_scores import LiveScore
from slipstream.store.rollout_units import AssignedUnit, CountedUnit, StoredCall, UnitLedger

_BATCH = 200
"""Units counted in one transaction."""

_SCORED_BATCH = 20
"""The same where their answers are read: judges take seconds, and decisions wait for the batch."""

_PAGE = 250
"""Counted units read at once: some thirty milliseconds of work, in which the training side does nothing else."""


class UnitOutcome(NamedTuple):
    """A unit whose value is final, with all that its value is made of.

    Attributes:
        scores: of its answers; None if they are not scored.
        feedback: the newest reward of each of its answers that has one.
        tokens: of each of its stored answers, with their prompts; None for one that does not say, and for the whole
            where nobody asks for them.
    """

    unit: AssignedUnit
    scores: Sequence[LiveScore] | None
    feedback: Sequence[float]
    tokens: Sequence[int | None] | None


class CountingPlan(Waits, Protocol):
    """A plan, as far as it says how units are counted."""

    @property
    def scores(self) -> bool: ...

    @property
    def scoring(self) -> LiveScoring: ...


@dataclass(frozen=True)
class Counting:
    """The comparison whose units are counted.

    Attributes:
        id: of the rollout or the experiment.
        version: that is compared.
        begun_at: when its first users were assigned, Unix seconds.
        values: makes the values of a unit, by the ledger's columns.
        tokens: the tokens of its answers are wanted.
    """

    ledger: UnitLedger[Any]
    id: int
    version: int
    begun_at: float
    plan: CountingPlan
    values: Callable[[UnitOutcome], Mapping[str, Any]]
    tokens: bool = False


class UnitCounter:
    """Writes the final values of units."""

    def __init__(self, context: Context, scorer: LiveScorer) -> None:
        self._context = context
        self._database = context.database
        self._scorer = scorer

    async def step(self, of: Counting) -> bool:
        """Count a batch. Returns True when more may be due."""
        plan, now = of.plan, self._context.clock()
        batch = _SCORED_BATCH if plan.scores or of.tokens else _BATCH
        async with self._database.read() as session:
            waiting = await rollout_units.uncounted(session, of.ledger, of.id, of.version, of.begun_at, now, batch)
            over = ended(plan, waiting, now)
            calls = await rollout_units.calls_of(session, over, partial(ends_at, plan))
            ids = {call.id for some in calls.values() for call in some}
            said = await feedback_views.about_calls(session, ids) if ids else {}
            tokens = await answer_tokens.of_calls(session, ids) if of.tokens else None
        if not over:
            return False
        scores: Mapping[str, list[LiveScore] | None] = dict.fromkeys(calls)
        if plan.scores:
            scores = await self._scorer.score(plan.scoring, calls)
        counted = []
        for unit in over:
            own: list[StoredCall] = calls[unit.unit]
            posted = [[one.reward for one in said.get(call.id, ()) if one.reward is not None] for call in own]
            newest = [rewards_of_call[-1] for rewards_of_call in posted if rewards_of_call]
            used = None if tokens is None else [tokens.get(call.id) for call in own]
            counted.append((unit, of.values(UnitOutcome(unit, scores[unit.unit], newest, used))))
        async with self._database.write() as session:
            await sidecars.hold(session, self._context.membership.id)
            await rollout_units.count(session, of.ledger, of.id, counted)
        return len(waiting) == len(over) == batch


class Accumulator(Protocol):
    """Evidence that takes counted units in their order.

    Attributes:
        last: the number of the last unit that was added.
    """

    last: int

    def add(self, units: Iterable[CountedUnit[Any]], /) -> None: ...


A = TypeVar("A", bound=Accumulator)


class Evidences(Generic[A]):
    """The evidence of the current comparison, kept while it is the same, and brought up to date from the store."""

    def __init__(self, database: Database, ledger: UnitLedger[Any]) -> None:
        self._database = database
        self._ledger = ledger
        self._of: tuple[Any, ...] | None = None
        self._evidence: A | None = None
        self._one_at_a_time = asyncio.Lock()  # the stage and the metrics both ask, and a unit counts once

    async def of(self, comparison: int, name: tuple[Any, ...], new: Callable[[], A]) -> A:
        """The evidence with all units that are counted.

        Args:
            comparison: the id of the rollout or the experiment.
            name: of the evidence; with another one it begins anew.
            new: makes one without units.
        """
        async with self._one_at_a_time:
            if self._evidence is None or self._of != name:
                self._of, self._evidence = name, new()
            return await up_to_date(self._database, self._ledger, comparison, self._evidence)

    def forget(self) -> None:
        """There is no comparison."""
        self._of = self._evidence = None


async def up_to_date(database: Database, ledger: UnitLedger[Any], comparison: int, evidence: A) -> A:
    """The evidence, with the units that were counted since its last one."""
    while True:
        async with database.read() as session:
            units = await rollout_units.counted_after(session, ledger, comparison, evidence.last, _PAGE)
        evidence.add(units)
        if len(units) < _PAGE:
            return evidence
