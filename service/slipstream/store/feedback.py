"""Feedback: what it names, and whom it is about.

It describes the answer that the user saw. Where the policy gave that answer it becomes the run's reward; where
production gave it, it stays with the production answer and is never the reward of a shadow answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, Exists, and_, delete, exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from slipstream.serving.page import PRODUCTION
from slipstream.store.bulk import batches
from slipstream.store.msg_ids import NamedCall, named_call
from slipstream.store.scoring_again import OPEN, rewards_may_change, runs_of, score_again, to_be_calculated
from slipstream.store.states import FEEDBACK_WITHOUT_EFFECT, FeedbackState, RunState, move
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.feedback import FeedbackRow, FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import split

Kind = Literal["msg_id", "task_id", "session_id"]
Ref = tuple[Kind, str]
"""A thing that a feedback can name, by its id in the store, which has its tenant: also an answer of the policy."""


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """A feedback to be stored: who it is for, and what was said.

    Attributes:
        key: name of the key that it came with.
        counts_as: the reward with the key's weight; None for the reward itself.
        ignored: the key has the weight 0.
    """

    id: str
    kind: Kind
    refs: tuple[str, ...]
    reward: float | None
    rating: int | None = None
    thumbs: str | None = None
    comment: str | None = None
    source: str | None = None
    key: str | None = None
    counts_as: float | None = None
    ignored: bool = False


async def add(session: AsyncSession, new: NewFeedback, now: float) -> bool:
    """Store a feedback and match what it names to what is stored.

    Returns:
        True when a run is to be scored again.
    """
    session.add(
        FeedbackRow(
            id=new.id,
            reward=new.reward,
            rating=new.rating,
            thumbs=new.thumbs,
            comment=new.comment,
            source=new.source,
            created_at=now,
            key=new.key,
            named=len(new.refs),
            counts_as=new.counts_as,
        )
    )
    await session.flush()
    rescore = False
    for ref in dict.fromkeys(new.refs):
        target = FeedbackTargetRow(feedback_id=new.id, kind=new.kind, ref=ref, state=FeedbackState.WAITING)
        session.add(target)
        await session.flush()
        if new.ignored:
            await _ignore(session, target)
        else:
            rescore |= await _match(session, target, now)
    return rescore


async def _ignore(session: AsyncSession, target: FeedbackTargetRow) -> None:
    """Keep the answer that is meant, for readers and for deletions: no run is scored again, and no grace ends."""
    target.state = move(target.state, FeedbackState.IGNORED)
    run = await policy_run(session, target.ref) if target.kind == "msg_id" else None
    if run is not None:
        target.run_pk, target.matched_to = run.id, "policy"
    elif (call := await _production_answer(session, target)) is not None:
        target.call_pk, target.matched_to = call.pk, await _who_gave(session, call)


def may_wait(since: float) -> tuple[Exists, Exists]:
    """Return the conditions under which feedback may wait for any answer at all, as `awaited` means it."""
    return exists().where(_waiting()), exists().where(_recent(since))


async def awaited(session: AsyncSession, refs: Iterable[Ref], since: float) -> set[tuple[str, str]]:
    """Names that feedback may wait for: all of these that are such, and perhaps others.

    Args:
        since: when the first of the answers ended that are being stored. Feedback that came later may have been
            matched to an earlier answer, as `match_waiting` says.
    """
    named = select(FeedbackTargetRow.kind, FeedbackTargetRow.ref)
    queries = [named.join(FeedbackRow, FeedbackRow.id == FeedbackTargetRow.feedback_id).where(_recent(since))]
    names: dict[Kind, list[str]] = {}
    for kind, ref in dict.fromkeys(refs):
        names.setdefault(kind, []).append(ref)
    for kind, several in names.items():
        for some in batches(several):
            of_these = FeedbackTargetRow.kind == kind, FeedbackTargetRow.ref.in_(some)
            queries.append(named.where(*of_these, _waiting()))
    return {(kind, ref) for query in queries for kind, ref in await session.execute(query)}


async def waited_for(session: AsyncSession, msg_ids: Iterable[str]) -> set[str]:
    """Return those of these answers that feedback waits for by their ids."""
    found = set[str]()
    for some in batches(list(msg_ids)):
        of_these = FeedbackTargetRow.kind == "msg_id", FeedbackTargetRow.ref.in_(some)
        found.update(await session.scalars(select(FeedbackTargetRow.ref).where(*of_these, _waiting())))
    return found


def _waiting() -> ColumnElement[bool]:
    return FeedbackTargetRow.state == FeedbackState.WAITING


def _recent(since: float) -> ColumnElement[bool]:
    return FeedbackRow.created_at >= since


def has_effect() -> ColumnElement[bool]:
    """Return the condition that feedback which names an answer counts, or did until newer feedback came."""
    # in words for which SQLite has no index: by the states it would go through all that ever was
    return FeedbackTargetRow.state.not_in(FEEDBACK_WITHOUT_EFFECT)


async def match_waiting(session: AsyncSession, refs: Iterable[Ref], now: float, ended_at: float | None = None) -> bool:
    """Match the feedback that waited for any of these names, oldest first. Returns True when a run is to be scored
    again.

    Args:
        ended_at: when the answer that was just stored had ended. What was said of its task or session after that is
            about this answer, though it was matched to an earlier one, because this one was not stored yet.
    """
    waited: list[FeedbackTargetRow] = []
    for kind, ref in dict.fromkeys(refs):
        due = FeedbackTargetRow.state == FeedbackState.WAITING
        if ended_at is not None and kind != "msg_id":
            moves = FeedbackTargetRow.matched_to.in_(("production", "lane")), has_effect()
            due |= and_(*moves, FeedbackRow.created_at >= ended_at)
        query = select(FeedbackTargetRow).join(FeedbackRow, FeedbackRow.id == FeedbackTargetRow.feedback_id)
        waited += await session.scalars(query.where(FeedbackTargetRow.kind == kind, FeedbackTargetRow.ref == ref, due))
    rescore = False
    for target in sorted(waited, key=lambda target: target.id):  # posts that name one answer in other ways too
        rescore |= await _match(session, target, now)
    return rescore


async def give_up_waiting(session: AsyncSession, before: float) -> None:
    """Nothing of that name appeared: what was posted before this time is `unknown`."""
    # for each that waits, its post is looked up: a list of all old posts would grow with the store
    old = exists().where(FeedbackRow.id == FeedbackTargetRow.feedback_id, FeedbackRow.created_at < before)
    await session.execute(
        update(FeedbackTargetRow)
        .where(FeedbackTargetRow.state == FeedbackState.WAITING, old)
        .values(state=move(FeedbackState.WAITING, FeedbackState.UNKNOWN))
        .execution_options(synchronize_session=False)
    )


async def delete_older(session: AsyncSession, before: float, limit: int) -> int:
    """Delete feedback posted before this time, the oldest first; returns how many."""
    due = select(FeedbackRow.id).where(FeedbackRow.created_at < before).order_by(FeedbackRow.created_at)
    old = (await session.scalars(due.limit(limit))).all()
    await session.execute(delete(FeedbackRow).where(FeedbackRow.id.in_(old)))
    return len(old)


async def _match(session: AsyncSession, target: FeedbackTargetRow, now: float) -> bool:
    if target.kind == "msg_id":
        run = await policy_run(session, target.ref)
        if run is not None:
            return await _match_run(session, target, run, now)
    call = await _production_answer(session, target)
    if call is None:
        return False
    matched_to = await _who_gave(session, call)
    if not call.same:  # a retry brought another answer, which this says nothing of
        target.call_pk, target.matched_to, target.state = call.pk, matched_to, move(target.state, FeedbackState.LATE)
        return False
    about = [call.pk]
    if target.call_pk is not None:
        about.append(target.call_pk)
        await _take_back(session, target)
    await _supersede(session, FeedbackTargetRow.call_pk == call.pk)
    target.call_pk, target.matched_to, target.state = call.pk, matched_to, move(target.state, FeedbackState.MATCHED)
    shadow_calls = (await session.scalars(runs_of(GroupRow.call_id.in_(about), OPEN))).all()
    return await score_again(session, [*shadow_calls, *await _replays_of(session, about)])


async def _who_gave(session: AsyncSession, call: NamedCall) -> Literal["production", "lane"]:
    variant = await session.scalar(select(CallRow.variant).where(CallRow.id == call.pk))
    return "production" if variant in (None, PRODUCTION) else "lane"


async def _replays_of(session: AsyncSession, calls: Sequence[int]) -> list[int]:
    """The runs of agents that are compared with these calls: each is the last one of its task."""
    later = aliased(CallRow)
    goes_on = exists().where(later.task_id == CallRow.task_id, later.position > CallRow.position)
    tasks = (await session.scalars(select(CallRow.task_id).where(CallRow.id.in_(calls), ~goes_on))).all()
    return await to_be_calculated(session, GroupRow.task_id.in_(tasks), GroupRow.call_id.is_(None), OPEN)


async def policy_run(session: AsyncSession, ref: str) -> RunRow | None:
    """The run of this tenant that an answer of the policy is of."""
    tenant, msg_id = split(ref)
    own = select(RunRow).join(GroupRow, GroupRow.id == RunRow.group_id).join(TaskRow, TaskRow.id == GroupRow.task_id)
    own = own.where(TaskRow.tenant == tenant)
    run = await session.scalar(own.where(RunRow.msg_id == msg_id))
    if run is not None:
        return run
    replays = own.join(RunCallRow, RunCallRow.run_pk == RunRow.id)
    replay: RunRow | None = await session.scalar(replays.where(RunCallRow.msg_id == msg_id))
    return replay


async def _match_run(session: AsyncSession, target: FeedbackTargetRow, run: RunRow, now: float) -> bool:
    target.run_pk, target.matched_to = run.id, "policy"
    group = await session.get_one(GroupRow, run.group_id)
    if not rewards_may_change(group):
        target.state = move(target.state, FeedbackState.LATE)
        return False
    earlier = FeedbackTargetRow.feedback_id != target.feedback_id  # one may name each answer of a replay
    await _supersede(session, FeedbackTargetRow.run_pk == run.id, earlier)
    target.state = move(target.state, FeedbackState.MATCHED)
    if run.state == RunState.OPEN:
        return False
    run.due_at = run.updated_at = now  # what the grace was for is here; feedback on production's answer does not end it
    return await score_again(session, [run.id])


async def _production_answer(session: AsyncSession, target: FeedbackTargetRow) -> NamedCall | None:
    """The answer of production that is meant: of a task or a session, the last one that the user saw."""
    if target.kind == "msg_id":
        return await named_call(session, target.ref)
    query = select(CallRow.id).join(TaskRow, TaskRow.id == CallRow.task_id)
    if target.kind == "task_id":
        query = query.where(CallRow.task_id == target.ref).order_by(CallRow.position.desc())
    else:
        query = query.where(TaskRow.session_id == target.ref).order_by(TaskRow.updated_at.desc())
    call_pk = await session.scalar(query.order_by(CallRow.id.desc()).limit(1))
    return None if call_pk is None else NamedCall(call_pk)


async def _supersede(session: AsyncSession, *conditions: ColumnElement[bool]) -> None:
    await session.execute(
        update(FeedbackTargetRow)
        .where(*conditions, FeedbackTargetRow.state == FeedbackState.MATCHED)
        .values(state=move(FeedbackState.MATCHED, FeedbackState.SUPERSEDED))
        .execution_options(synchronize_session="fetch")
    )


async def _take_back(session: AsyncSession, target: FeedbackTargetRow) -> None:
    """A feedback turns out to be about another answer: the one before it on this answer counts again."""
    query = select(FeedbackTargetRow).where(
        FeedbackTargetRow.call_pk == target.call_pk,
        FeedbackTargetRow.id != target.id,
        has_effect(),
    )
    newest = await session.scalar(query.order_by(FeedbackTargetRow.id.desc()).limit(1))
    if newest is not None:
        newest.state = move(newest.state, FeedbackState.MATCHED)
