"""Rows of supervised data sets, read from the store: production's answers, and the policy's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.datasets.config import Dataset, Filters, OfPolicy, OfProduction
from slipstream.datasets.exchange import Unfit, exchange
from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.scoring import AnswerScorer
from slipstream.store import training_answers as stored
from slipstream.store.database import Database
from slipstream.store.training_answers import GroupOfRuns, OfTask, ProductionAnswer, ScoredRun
from slipstream.trajectory import Feedback

_PAGE = 200
"""Answers that are in memory at once: two bodies of a call can have megabytes."""

_BLOCK = 2000
"""Answers of a block."""

_RUNS = 8
"""Runs of a group, about."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of what is read, in the order of the store.

    Attributes:
        source: its place among the data set's sources.
        after, up_to: rows of calls, or names of groups, that it begins behind and ends with.
    """

    source: int
    after: Any
    up_to: Any


@dataclass(frozen=True, slots=True)
class Dropped:
    """An answer that makes no row, and the reason in a few stable words, which are counted."""

    reason: str


class Sources:
    """Reads the rows of a data set of the kinds sft and kto.

    Args:
        scorer: None if production's answers are not scored.
        middle: of the range of rewards; feedback above it is liking.
    """

    def __init__(self, database: Database, dataset: Dataset, scorer: AnswerScorer | None, middle: float) -> None:
        self._database = database
        self._dataset = dataset
        self._scorer = scorer
        self._middle = middle

    async def blocks(self) -> list[Block]:
        """All that is to be read, the sources one after the other."""
        found = []
        async with self._database.read() as session:
            for place, source in enumerate(self._dataset.sources):
                spans: Sequence[tuple[Any, Any]]
                if source.production is not None:
                    spans = await stored.spans_of_calls(session, _BLOCK)
                else:
                    spans = await stored.spans_of_groups(session, _BLOCK // _RUNS)
                found += [Block(place, *span) for span in spans]
        return found

    async def rows(self, block: Block) -> AsyncIterator[Row | Dropped]:
        """Read a block."""
        source = self._dataset.sources[block.source]
        if source.production is not None:
            async for row in self._production(source.production, block):
                yield row
        if source.policy is not None:
            async for row in self._policy(source.policy, block):
                yield row

    async def _production(self, wanted: OfProduction, block: Block) -> AsyncIterator[Row | Dropped]:
        after = block.after
        while True:
            async with self._database.read() as session:
                page = await stored.production_answers(session, after, block.up_to, _PAGE, self._dataset.tenants)
            for answer in page:
                yield await self._of_production(answer, wanted)
            if len(page) < _PAGE:
                return
            after = page[-1].pk

    async def _of_production(self, found: ProductionAnswer, wanted: OfProduction) -> Row | Dropped:
        call = found.call
        liked = said(found.feedback)
        if why := _refused(wanted, found.task, call.model, call.started_at, liked, self._middle):
            return Dropped(why)
        if call.problem is not None:
            return Dropped(f"policy cannot be asked: {call.problem}")
        score = None
        if self._scorer is not None:
            score = await self._scorer.score(
                found.task, call.request, call.answer, position=call.position, last=found.last
            )
        reward = None if score is None else score.reward
        if why := _by_reward(wanted, reward):
            return Dropped(why)
        return self._row(
            found.task,
            call.request,
            call.answer,
            Provenance(
                task=found.task.ref,
                session=found.task.session_ref,
                tenant=found.task.tenant,
                source=Source.PRODUCTION,
                msg_ids=(call.msg_id,) if call.msg_id else (),
                models=(call.model or "unknown",),
                rewards=(reward,),
                breakdown={} if score is None else score.breakdown,
                feedback=(liked,),
                labels=found.task.labels,
                created_at=call.started_at,
            ),
        )

    async def _policy(self, wanted: OfPolicy, block: Block) -> AsyncIterator[Row | Dropped]:
        after, size = block.after, _PAGE // _RUNS
        while True:
            async with self._database.read() as session:
                page = await stored.groups(session, after, block.up_to, size, self._dataset.tenants)
            for group in page:
                for row in self._of_group(group, wanted):
                    yield row
            if len(page) < size:
                return
            after = page[-1].id

    def _of_group(self, group: GroupOfRuns, wanted: OfPolicy) -> list[Row | Dropped]:
        if wanted.runs and group.kind not in wanted.runs:
            return [Dropped("another kind of run")] * len(group.runs)
        best = sorted(group.runs, key=lambda run: (-run.reward, run.run_id))[: wanted.best_of_group]
        found: list[Row | Dropped] = [Dropped("not the best of its group")] * (len(group.runs) - len(best))
        for run in sorted(best, key=lambda run: run.run_id):
            found += self._of_run(group, run, wanted)
        return found

    def _of_run(self, group: GroupOfRuns, run: ScoredRun, wanted: OfPolicy) -> list[Row | Dropped]:
        liked = said(run.feedback)
        model = None if group.production is None else group.production.call.model
        why = _refused(wanted, group.task, model, run.updated_at, liked, self._middle) or _by_reward(wanted, run.reward)
        if wanted.versions and run.version not in wanted.versions:
            why = "another version"
        if why:
            return [Dropped(why)]
        return [
            self._row(
                group.task,
                call.request,
                call.answer,
                Provenance(
                    task=group.task.ref,
                    session=group.task.session_ref,
                    tenant=group.task.tenant,
                    source=Source.POLICY,
                    group=group.id,
                    msg_ids=(call.msg_id,),
                    models=(version_name(call.policy_version),),
                    rewards=(run.reward,),
                    breakdown=run.breakdown,
                    feedback=(liked,),
                    labels=group.task.labels,
                    created_at=run.updated_at,
                ),
            )
            for call in run.calls
        ]

    def _row(self, task: OfTask, request: Any, answer: Any, provenance: Provenance) -> Row | Dropped:
        good = None
        if self._dataset.kind is Kind.KTO:
            good = _good(provenance, self._middle)
            if good is None:
                return Dropped("neither a reward nor feedback")
        try:
            made = exchange(request, answer, thoughts=provenance.source is Source.POLICY)
        except Unfit as unfit:
            return Dropped(str(unfit))
        return Row(self._dataset.kind, made.prompt, made.answer, provenance, made.tools, good=good)


def said(feedback: Sequence[Feedback]) -> float | None:
    """The newest reward that users gave; None if none did."""
    return next((each.reward for each in reversed(feedback) if each.reward is not None), None)


def version_name(version: int | None) -> str:
    """The name of the policy at a version, as of a captured call."""
    return "policy" if version is None else f"version:{version}"


def _good(provenance: Provenance, middle: float) -> bool | None:
    """Judge an answer by its users if they said so, else by its reward; None if neither is known."""
    value = provenance.feedback[0] if provenance.feedback[0] is not None else provenance.rewards[0]
    return None if value is None or value == middle else value > middle


def _refused(
    wanted: Filters, task: OfTask, model: str | None, at: float, liked: float | None, middle: float
) -> str | None:
    if wanted.models and model not in wanted.models:
        return "another model"
    if wanted.labels and not set(wanted.labels) & set(task.labels):
        return "without the labels"
    if (wanted.since and at < wanted.since.timestamp()) or (wanted.until and at >= wanted.until.timestamp()):
        return "outside of since and until"
    if wanted.liked is not None and (liked is None or liked == middle or (liked > middle) is not wanted.liked):
        return "not liked" if wanted.liked else "not disliked"
    return None


def _by_reward(wanted: Filters, reward: float | None) -> str | None:
    if wanted.min_reward is None and wanted.max_reward is None:
        return None
    if reward is None:
        return "without a reward"
    if wanted.min_reward is not None and reward < wanted.min_reward:
        return "reward below min_reward"
    return "reward above max_reward" if wanted.max_reward is not None and reward > wanted.max_reward else None
