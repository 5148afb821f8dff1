"""Rows of preference data sets: pairs of answers to one prompt."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from slipstream.datasets.config import Dataset, Pairs
from slipstream.datasets.exchange import Unfit, exchange, says_the_same, with_call_ids
from slipstream.datasets.row import Kind, Provenance, Row, Source
from slipstream.datasets.scoring import AnswerScorer, Score
from slipstream.datasets.sources import Block, Dropped, said, version_name
from slipstream.jsontext import to_json
from slipstream.store import training_answers as stored
from slipstream.store.database import Database
from slipstream.store.preference_verdicts import Verdict, verdicts
from slipstream.store.training_answers import GroupOfRuns, OfTask, ProductionAnswer, ScoredRun
from slipstream.trajectory import PolicyCall

_PAGE = 50
"""Groups that are in memory at once."""

_BLOCK = 500
"""Groups of a block."""

_GROUPS, _JUDGED, _TWICE = 0, 1, 2
"""The sources of pairs, as blocks name them."""

_REMEMBERED = 10_000
"""Judged questions that are remembered until they are answered again: a user asks again within minutes."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that a pair can be made of."""

    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    model: str
    msg_id: str
    reward: float | None
    breakdown: Mapping[str, float | None]
    feedback: float | None
    at: float
    by_policy: bool = False


class PairSources:
    """Reads the pairs of a data set.

    Args:
        scorer: judges production's answers and the policy's alike; None if there is nothing to judge them by.
        middle: of the range of rewards; feedback above it is liking.
    """

    def __init__(self, database: Database, dataset: Dataset, scorer: AnswerScorer | None, middle: float) -> None:
        assert dataset.pairs is not None, "of a preference data set"
        self._database = database
        self._dataset = dataset
        self._pairs: Pairs = dataset.pairs
        self._scorer = scorer
        self._middle = middle

    async def blocks(self) -> list[Block]:
        """All that is to be read: the groups, then what people judged, and what was answered twice, a block each."""
        found: list[Block] = []
        if {"runs", "production_vs_policy", "thumbs"} & set(self._pairs.from_):
            async with self._database.read() as session:
                found += [Block(_GROUPS, *span) for span in await stored.spans_of_groups(session, _BLOCK)]
        if "preferences" in self._pairs.from_:
            found.append(Block(_JUDGED, None, None))
        if "thumbs" in self._pairs.from_:
            found.append(Block(_TWICE, None, None))
        return found

    async def rows(self, block: Block) -> AsyncIterator[Row | Dropped]:
        """Read a block."""
        if block.source == _JUDGED:
            rows = self._judged()
        elif block.source == _TWICE:
            rows = self._answered_twice()
        else:
            rows = self._of_groups(block)
        async for row in rows:
            yield row

    async def _of_groups(self, block: Block) -> AsyncIterator[Row | Dropped]:
        after = block.after
        while True:
            async with self._database.read() as session:
                page = await stored.groups(session, after, block.up_to, _PAGE, self._dataset.tenants)
            for group in page:
                if "runs" in self._pairs.from_:
                    for row in self._of_runs(group):
                        yield row
                if group.production is not None and {"production_vs_policy", "thumbs"} & set(self._pairs.from_):
                    for row in await self._with_production(group, group.production):
                        yield row
            if len(page) < _PAGE:
                return
            after = page[-1].id

    def _of_runs(self, group: GroupOfRuns) -> list[Row | Dropped]:
        """Pairs of runs, those with the largest margins first; each run is in one pair at most, as the first or the
        second answer, so that `per_group` pairs are of different answers. A pair that cannot be taught leaves its place
        to the next: the worst answer of a group is often one that was cut."""
        found: list[Row | Dropped] = []
        unfit: list[Row | Dropped] = []
        by_margin = sorted(
            combinations(group.runs, 2), key=lambda pair: (-abs(pair[0].reward - pair[1].reward), pair[0].run_id)
        )
        taken: set[int] = set()
        for one, other in by_margin:
            better, worse = (one, other) if one.reward >= other.reward else (other, one)
            if better.reward - worse.reward < self._pairs.min_margin or better.reward == worse.reward:
                break
            if {better.pk, worse.pk} & taken or len(found) >= self._pairs.per_group:
                continue
            at = _first_difference(better.calls, worse.calls)
            if at is None:
                continue
            row = self._row(group.task, Source.RUNS, group.id, _of_run(better, at), _of_run(worse, at))
            if isinstance(row, Dropped):
                unfit.append(row)
                continue
            taken |= {better.pk, worse.pk}
            found.append(row)
        return found or unfit[:1] or [Dropped("group without two runs of different rewards")]

    async def _with_production(self, group: GroupOfRuns, production: ProductionAnswer) -> list[Row | Dropped]:
        """Pairs of production's answer and a run's. By rewards, both are scored by the same calculators; by thumbs,
        production's answer was liked and the run's reward is low, or the other way round."""
        found: list[Row | Dropped] = []
        call = production.call
        score = await self._score(group, production, call.request, call.answer)
        given = _Answer(
            call.request,
            call.answer,
            call.model or "unknown",
            call.msg_id or "",
            None if score is None else score.reward,
            {} if score is None else score.breakdown,
            said(production.feedback),
            call.started_at,
        )
        scored = []
        for run in group.runs:
            of_run = _of_run(run, 0)
            again = await self._score(group, production, of_run.request, of_run.answer)
            if again is not None:  # the reward that the pair is chosen by is the one that its provenance has
                scored.append((replace(of_run, reward=again.reward, breakdown=again.breakdown), again.reward))
        if "production_vs_policy" in self._pairs.from_:
            found += self._against(group, given, scored)
        if "thumbs" in self._pairs.from_:
            found += self._by_thumbs(group, given, scored)
        return found

    async def _score(
        self, group: GroupOfRuns, production: ProductionAnswer, request: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Score | None:
        if self._scorer is None:
            return None
        place = production.call.position
        return await self._scorer.score(group.task, request, answer, position=place, last=production.last)

    def _against(
        self, group: GroupOfRuns, given: _Answer, scored: Sequence[tuple[_Answer, float]]
    ) -> list[Row | Dropped]:
        if given.reward is None or not scored:
            return [Dropped("production's answer has no reward")]
        reward = given.reward
        rows: list[Row | Dropped] = []
        unfit: list[Row | Dropped] = []
        for answer, value in sorted(scored, key=lambda pair: -abs(pair[1] - reward)):
            if abs(value - reward) < self._pairs.min_margin or value == reward or len(rows) >= self._pairs.per_group:
                break
            better = (answer, given) if value > reward else (given, answer)
            row = self._row(group.task, Source.PRODUCTION_VS_POLICY, group.id, *better)
            (unfit if isinstance(row, Dropped) else rows).append(row)
        return rows or unfit[:1] or [Dropped("margin below min_margin")]

    def _by_thumbs(
        self, group: GroupOfRuns, given: _Answer, scored: Sequence[tuple[_Answer, float]]
    ) -> list[Row | Dropped]:
        if given.feedback is None or given.feedback == self._middle or not scored:
            return [Dropped("no user liked or disliked production's answer")]
        liked = given.feedback > self._middle
        # the other answer has to be on the other side by its reward: two good answers teach nothing
        answer, value = min(scored, key=lambda pair: pair[1]) if liked else max(scored, key=lambda pair: pair[1])
        if (value > self._middle) is liked or value == self._middle:
            return [Dropped("no run on the other side of the user's judgement")]
        better = (given, answer) if liked else (answer, given)
        return [self._row(group.task, Source.THUMBS, group.id, *better)]

    async def _answered_twice(self) -> AsyncIterator[Row | Dropped]:
        """Pairs of production's answers to one question of a session, of which one was liked and the other disliked:
        the user asked again, or the two were imported as a preference."""
        waiting: OrderedDict[bytes, tuple[int, bool]] = OrderedDict()
        after = 0
        while True:
            async with self._database.read() as session:
                page = await stored.judged_answers(session, after, _PAGE, self._dataset.tenants)
                asked = {each.pk: _question(each) for each in page}
                earlier = await stored.calls_by_row(session, {waiting[q][0] for q in asked.values() if q in waiting})
            known = {**earlier, **{each.pk: each for each in page}}
            for each in page:
                given = said(each.feedback)
                if given is None or given == self._middle:
                    continue
                if each.call.problem is not None:
                    yield Dropped(f"policy cannot be asked: {each.call.problem}")
                    continue
                question, liked = asked[each.pk], given > self._middle
                other, other_liked = waiting.get(question, (0, liked))
                if other_liked is liked or other not in known:
                    waiting[question] = each.pk, liked
                    if len(waiting) > _REMEMBERED:
                        waiting.popitem(last=False)
                    continue
                del waiting[question]
                better, worse = (each, known[other]) if liked else (known[other], each)
                made = self._row(each.task, Source.THUMBS, None, _of_user(better), _of_user(worse))
                earlier_task = known[other].task.ref
                if isinstance(made, Row) and earlier_task != each.task.ref:  # a deletion of either reaches the pair
                    made = replace(made, provenance=replace(made.provenance, said_in=earlier_task))
                yield made
            if len(page) < _PAGE:
                return
            after = page[-1].pk

    async def _judged(self) -> AsyncIterator[Row | Dropped]:
        after: tuple[float, str] | None = (0.0, "")
        while after is not None:
            async with self._database.read() as session:
                found, after = await verdicts(session, None, _PAGE, after)
                calls = await stored.calls_by_row(session, {each.call_id for each in found})
                of = {
                    run: calls[each.call_id]
                    for each in found
                    if each.call_id in calls
                    for run in (each.left_run, each.right_run)
                    if run is not None
                }
                runs = await stored.runs_by_row(session, of, of)
            for verdict in found:
                yield self._of_verdict(verdict, calls.get(verdict.call_id), runs)

    def _of_verdict(
        self, verdict: Verdict, production: ProductionAnswer | None, runs: Mapping[int, PolicyCall]
    ) -> Row | Dropped:
        right = runs.get(verdict.right_run)
        left = None if verdict.left_run is None else runs.get(verdict.left_run)
        if production is None or right is None or (verdict.left_run is not None and left is None):
            return Dropped("an answer of the pair was deleted")
        if self._dataset.tenants and production.task.tenant not in self._dataset.tenants:
            return Dropped("another tenant")
        call = production.call
        sides = (
            _Answer(call.request, call.answer, verdict.left_variant, call.msg_id or "", None, {}, None, call.started_at)
            if left is None
            else _judged_run(left, verdict.left_variant, call.started_at),
            _judged_run(right, verdict.right_variant, call.started_at),
        )
        chosen, rejected = sides if verdict.left_chosen else (sides[1], sides[0])
        return self._row(production.task, Source.PREFERENCES, None, chosen, rejected)

    def _row(
        self, task: OfTask, source: Source, group: str | None, chosen: _Answer, rejected: _Answer
    ) -> Row | Dropped:
        # with thoughts in one of them alone, a pair would teach to think, or not to
        thoughts = chosen.by_policy and rejected.by_policy
        try:
            better = exchange(chosen.request, chosen.answer, thoughts=thoughts)
            worse = exchange(rejected.request, rejected.answer, thoughts=thoughts)
        except Unfit as unfit:
            return Dropped(str(unfit))
        if says_the_same(better.answer, worse.answer):
            return Dropped("both answers are equal")
        provenance = Provenance(
            task=task.ref,
            session=task.session_ref,
            tenant=task.tenant,
            source=source,
            group=group,
            msg_ids=(chosen.msg_id, rejected.msg_id),
            models=(chosen.model, rejected.model),
            rewards=(chosen.reward, rejected.reward),
            breakdown=chosen.breakdown,
            feedback=(chosen.feedback, rejected.feedback),
            labels=task.labels,
            created_at=chosen.at,
        )
        return Row(Kind.PREFERENCE, better.prompt, better.answer, provenance, better.tools, rejected=worse.answer)


def _of_run(run: ScoredRun, at: int) -> _Answer:
    call = run.calls[at]
    version = version_name(call.policy_version)
    return _Answer(
        call.request,
        call.answer,
        version,
        call.msg_id,
        run.reward,
        run.breakdown,
        said(run.feedback),
        run.updated_at,
        True,
    )


def _of_user(answer: ProductionAnswer) -> _Answer:
    call = answer.call
    model = call.model or "unknown"
    return _Answer(
        call.request, call.answer, model, call.msg_id or "", None, {}, said(answer.feedback), call.started_at
    )


def _question(answer: ProductionAnswer) -> bytes:
    """Return a hash of what was asked, and in which session."""
    request = answer.call.request
    asked = to_json([answer.task.session_ref, with_call_ids(request.get("messages") or ()), request.get("tools")])
    return hashlib.sha256(asked).digest()


def _judged_run(call: PolicyCall, variant: str, at: float) -> _Answer:
    return _Answer(call.request, call.answer, variant, call.msg_id, None, {}, None, at, by_policy=True)


def _first_difference(one: Sequence[PolicyCall], other: Sequence[PolicyCall]) -> int | None:
    """The first step at which two runs answered differently, to the same prompt; None if there is none.

    Behind it their prompts differ too: a pair of whole replays would train what tools returned.
    """
    for at, (mine, its) in enumerate(zip(one, other, strict=False)):
        asked, asked_too = mine.request.get("messages") or [], its.request.get("messages") or []
        if asked != asked_too and with_call_ids(asked) != with_call_ids(asked_too):
            return None
        if not says_the_same(mine.message, its.message):
            return at
    return None
