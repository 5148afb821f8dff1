"""Pairs of answers, the annotators to whom they are shown, and their judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, delete, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.preferences import PreferenceOfferRow, PreferencePairRow
from slipstream.store.tables.runs import RunRow


class PairKind(StrEnum):
    """Source of the two answers of a pair."""

    PRODUCTION = "production"
    """Production's answer, and a run's of the same call."""
    RUNS = "runs"
    """Two runs of one group."""


class Choice(StrEnum):
    """Judgement of an annotator, by the order in which the answers were shown."""

    A = "a"
    B = "b"
    TIE = "tie"
    BOTH_BAD = "both_bad"
    SKIP = "skip"
    """She cannot tell: the pair goes to another annotator."""


class Side(StrEnum):
    """Judgement by the answers themselves, whichever was shown first."""

    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    BOTH_BAD = "both_bad"


def side(choice: Choice, *, swapped: bool) -> Side | None:
    """Return the answer that was preferred; None for a pair that was skipped."""
    match choice:
        case Choice.A | Choice.B:
            return Side.RIGHT if (choice is Choice.B) != swapped else Side.LEFT
        case Choice.TIE:
            return Side.TIE
        case Choice.BOTH_BAD:
            return Side.BOTH_BAD
    return None


@dataclass(frozen=True, slots=True)
class NewPair:
    """A pair that is to be stored; as of `PreferencePairRow`."""

    id: str
    kind: PairKind
    tenant: str
    task_ref: str
    session_ref: str
    group_id: str
    call_id: int
    left_run: int | None
    right_run: int
    left_variant: str
    right_variant: str
    identical: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair that is shown to an annotator.

    Attributes:
        left_run: None for production's answer.
        swapped: the right answer is shown first.
        expires_at: Unix seconds until which it is kept for her.
    """

    pair_id: str
    call_id: int
    left_run: int | None
    right_run: int
    swapped: bool
    expires_at: float


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by which pairs are given out.

    Attributes:
        judgements: annotators who judge each pair.
        lease: seconds that a pair is kept for one of them.
    """

    judgements: int
    lease: float


@dataclass(frozen=True, slots=True)
class NewJudgement:
    """A judgement that was posted.

    Attributes:
        tenant: of the caller's key; None for one that reaches all.
        reason: redacted.
        key: name of the caller's key.
    """

    pair_id: str
    annotator: str
    choice: Choice
    tenant: str | None = None
    reason: str | None = None
    key: str | None = None


class Result(StrEnum):
    """Result of a judgement that was posted."""

    STORED = "stored"
    REPEATED = "repeated"
    """She had said the same before."""
    UNKNOWN = "unknown"
    """No pair has this id, or it was deleted."""
    NOT_OFFERED = "not_offered"
    CONTRADICTED = "contradicted"
    """She had chosen otherwise."""
    EXPIRED = "expired"
    """It was kept for her no longer, and others have judged it or are about to."""


@dataclass(frozen=True, slots=True)
class Judged:
    """Result of a judgement, with the choice that holds and the task that the pair belongs to."""

    result: Result
    choice: str | None = None
    task_ref: str | None = None


async def add(session: AsyncSession, new: NewPair, now: float) -> None:
    """Store a pair, unless its group has one of this kind already, or its answers were deleted meanwhile. No other
    transaction writes meanwhile."""
    same = (PreferencePairRow.group_id == new.group_id) & (PreferencePairRow.kind == new.kind)
    runs = {new.right_run} if new.left_run is None else {new.left_run, new.right_run}
    there = await session.scalar(select(func.count()).where(RunRow.id.in_(runs)))
    call = await session.scalar(select(CallRow.id).where(CallRow.id == new.call_id))
    if call is None or there != len(runs) or await session.scalar(select(exists().where(same))):
        return
    columns = {field.name: getattr(new, field.name) for field in fields(new)}
    session.add(PreferencePairRow(**columns, judged=0, created_at=now, updated_at=now))


async def lease(
    session: AsyncSession,
    annotator: str,
    tenant: str | None,
    kinds: Sequence[PairKind],
    rules: Rules,
    swapped: bool,
    now: float,
    after: str | None = None,
) -> Offer | None:
    """Give an annotator a pair: the one that she was shown and has not judged, else the oldest that needs a judgement.

    Args:
        tenant: None for pairs of all tenants.
        swapped: the order in which a pair is shown that she has not seen.
        after: a pair that is not given: she has chosen, and her judgement is to come.

    Returns:
        None if no stored pair of these kinds needs her judgement.
    """
    wanted = readable() & PreferencePairRow.kind.in_(kinds) & _has_room(annotator, rules, now)
    if tenant is not None:
        wanted &= PreferencePairRow.tenant == tenant
    if after is not None:
        wanted &= PreferencePairRow.id != after
    until = now + rules.lease
    mine = select(PreferenceOfferRow, PreferencePairRow).join(PreferencePairRow)
    mine = mine.where(PreferenceOfferRow.annotator == annotator, PreferenceOfferRow.judged_at.is_(None), wanted)
    held = (await session.execute(mine.order_by(PreferenceOfferRow.id).limit(1))).first()
    if held is not None:
        offer, pair = held
        offer.expires_at = until
        return _offer(pair, offer.swapped, until)
    seen = exists().where(PreferenceOfferRow.pair_id == PreferencePairRow.id, PreferenceOfferRow.annotator == annotator)
    new = select(PreferencePairRow).where(wanted, ~PreferencePairRow.identical, ~seen)
    found = (await session.scalars(new.order_by(PreferencePairRow.created_at).limit(1))).first()
    if found is None:
        return None
    session.add(
        PreferenceOfferRow(
            pair_id=found.id, annotator=annotator, swapped=swapped, offered_at=now, expires_at=until
        )
    )  # fmt: skip
    return _offer(found, swapped, until)


async def judge(session: AsyncSession, new: NewJudgement, rules: Rules, now: float) -> Judged:
    """Store a judgement. The same one again changes nothing."""
    pair = await session.get(PreferencePairRow, new.pair_id)
    if pair is None or new.tenant not in (None, pair.tenant):
        return Judged(Result.UNKNOWN)
    query = select(PreferenceOfferRow).where(PreferenceOfferRow.pair_id == pair.id)
    offer = (await session.scalars(query.where(PreferenceOfferRow.annotator == new.annotator))).first()
    if offer is None:
        return Judged(Result.NOT_OFFERED)
    if offer.choice is not None:
        result = Result.REPEATED if offer.choice == new.choice else Result.CONTRADICTED
        return Judged(result, offer.choice, pair.task_ref)
    if offer.expires_at <= now:
        room = select(PreferencePairRow.id).where(_has_room(new.annotator, rules, now))
        if await session.scalar(room.where(PreferencePairRow.id == pair.id)) is None:
            return Judged(Result.EXPIRED)
    offer.choice, offer.reason, offer.judged_at, offer.key = new.choice, new.reason, now, new.key
    pair.judged += new.choice is not Choice.SKIP
    pair.updated_at = now
    return Judged(Result.STORED, new.choice, pair.task_ref)


async def leave(session: AsyncSession, tasks: Select[Any] | Sequence[str]) -> None:
    """Delete what quotes these tasks, which are about to be deleted: pairs that nobody judged, and reasons. Choices
    stay, as numbers, and refer to nothing."""
    judged = exists().where(PreferenceOfferRow.pair_id == PreferencePairRow.id, PreferenceOfferRow.choice.is_not(None))
    of_tasks = PreferencePairRow.task_ref.in_(tasks)
    await _done(session, delete(PreferencePairRow).where(of_tasks, ~judged))
    said = PreferenceOfferRow.pair_id.in_(select(PreferencePairRow.id).where(of_tasks))
    await _done(session, update(PreferenceOfferRow).where(said).values(reason=None))
    gone = dict.fromkeys(("group_id", "call_id", "left_run", "right_run"))
    await _done(session, update(PreferencePairRow).where(of_tasks).values(**gone))


async def erase(
    session: AsyncSession, tasks: Select[Any], kind: Literal["session_id", "task_id"], ref: str, at: float
) -> int:
    """Delete the pairs of these tasks, and those of before this time of the session or the task that they belong to,
    which may have been deleted by retention; with their judgements. Returns how many."""
    column = PreferencePairRow.session_ref if kind == "session_id" else PreferencePairRow.task_ref
    named = (column == ref) & (PreferencePairRow.created_at <= at)
    return await _done(session, delete(PreferencePairRow).where(PreferencePairRow.task_ref.in_(tasks) | named))


async def delete_older(session: AsyncSession, before: float, limit: int) -> int:
    """Delete pairs that nobody has judged since this time, the oldest first; returns how many."""
    due = select(PreferencePairRow.id).where(PreferencePairRow.updated_at < before)
    old = (await session.scalars(due.order_by(PreferencePairRow.updated_at).limit(limit))).all()
    if old:
        await _done(session, delete(PreferencePairRow).where(PreferencePairRow.id.in_(old)))
    return len(old)


def readable() -> ColumnElement[bool]:
    """Return the condition that both answers are in the store."""
    left = (PreferencePairRow.kind == PairKind.PRODUCTION) | PreferencePairRow.left_run.is_not(None)
    return PreferencePairRow.call_id.is_not(None) & PreferencePairRow.right_run.is_not(None) & left


def _has_room(annotator: str, rules: Rules, now: float) -> ColumnElement[bool]:
    """Return the condition that a pair needs a judgement by her: others have not given all, and are not about to."""
    others = select(func.count()).where(
        PreferenceOfferRow.pair_id == PreferencePairRow.id,
        PreferenceOfferRow.annotator != annotator,
        PreferenceOfferRow.judged_at.is_(None),
        PreferenceOfferRow.expires_at > now,
    )
    kept = others.correlate(PreferencePairRow).scalar_subquery()
    open_ = PreferencePairRow.judged < rules.judgements
    return open_ & (PreferencePairRow.judged + kept < rules.judgements)


def _offer(pair: PreferencePairRow, swapped: bool, until: float) -> Offer:
    assert pair.call_id is not None, "of a readable pair"
    assert pair.right_run is not None, "of a readable pair"
    return Offer(pair.id, pair.call_id, pair.left_run, pair.right_run, swapped, until)


async def _done(session: AsyncSession, statement: Any) -> int:
    """Run a statement and return how many rows it changed."""
    done = await session.execute(statement.execution_options(synchronize_session=False))
    return int(done.rowcount)  # type: ignore[attr-defined]
