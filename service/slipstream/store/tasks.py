"""Tasks in the store: captured calls come in, marks are applied, complete tasks are read for a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import feedback
from slipstream.store.bodies import unpack
from slipstream.store.tables import CallRow, GroupRow, MarkRow, TaskRow
from slipstream.trajectory import Call, Task


@dataclass(frozen=True, slots=True)
class NewCall:
    """A captured call with its place, ready to be stored: redacted, complete, and its bodies packed."""

    session_id: str
    task_id: str
    request: bytes
    answer: bytes
    msg_id: str | None
    latency: float
    started_at: float
    completes: bool
    marked: bool
    labels: frozenset[str]
    metadata: Mapping[str, Any]


async def add_call(session: AsyncSession, new: NewCall, now: float) -> bool:
    """Store a call at the end of its task, with the marks and the feedback that waited for it.

    Returns:
        True when a run is to be scored again, because of that feedback.
    """
    task = await session.get(TaskRow, new.task_id)
    if task is None:
        task = TaskRow(
            id=new.task_id, session_id=new.session_id, labels=[], meta={}, revision=0, marked=False,
            created_at=now, updated_at=now,
        )  # fmt: skip
        session.add(task)
    position = await session.scalar(select(func.count()).where(CallRow.task_id == new.task_id)) or 0
    session.add(
        CallRow(
            task_id=new.task_id,
            position=position,
            msg_id=new.msg_id,
            request=new.request,
            answer=new.answer,
            latency=new.latency,
            started_at=new.started_at,
        )
    )
    task.state = "complete" if new.completes else "open"
    task.updated_at = now
    _mark(task, new.marked, new.labels, new.metadata)
    await session.flush()
    names = or_(MarkRow.task_id == new.task_id, MarkRow.msg_id == new.msg_id) if new.msg_id else (
        MarkRow.task_id == new.task_id
    )  # fmt: skip
    for mark in (await session.scalars(select(MarkRow).where(names, MarkRow.state == "waiting"))).all():
        if mark.expires_at > now:
            _apply(mark, task)
    refs: list[tuple[feedback.Kind, str]] = [("task_id", new.task_id), ("session_id", task.session_id)]
    if new.msg_id:
        refs.append(("msg_id", new.msg_id))
    return await feedback.match_waiting(session, refs, now, new.started_at + new.latency)


async def add_mark(session: AsyncSession, mark: MarkRow) -> bool:
    """Store a mark; apply it where what it names is stored. Returns True when a run is to be scored again with it."""
    session.add(mark)
    task_id = mark.task_id
    if task_id is None:
        newest = select(CallRow.task_id).where(CallRow.msg_id == mark.msg_id).order_by(CallRow.id.desc())
        task_id = await session.scalar(newest.limit(1))
    task = await session.get(TaskRow, task_id) if task_id is not None else None
    if task is None:
        return False
    _apply(mark, task)
    return await feedback.score_task_again(session, task.id)


async def expire_marks(session: AsyncSession, now: float) -> None:
    """Marks that waited in vain."""
    late = (MarkRow.state == "waiting", MarkRow.expires_at <= now)
    await session.execute(update(MarkRow).where(*late).values(state="expired"))


async def complete_idle(session: AsyncSession, before: float) -> int:
    """Tasks without a new call since this time are complete; returns how many."""
    idle = update(TaskRow).where(TaskRow.state == "open", TaskRow.updated_at < before).values(state="complete")
    return (await session.execute(idle)).rowcount  # type: ignore[attr-defined,no-any-return]


async def undecided(session: AsyncSession, limit: int) -> Sequence[str]:
    """Complete tasks without a decision, oldest first."""
    query = select(TaskRow.id).where(TaskRow.state == "complete", TaskRow.decided.is_(False))
    return (await session.scalars(query.order_by(TaskRow.updated_at).limit(limit))).all()


async def load(session: AsyncSession, task_id: str) -> Task:
    """A task with all its calls."""
    return await picture(session, await session.get_one(TaskRow, task_id))


async def picture(session: AsyncSession, row: TaskRow) -> Task:
    """The task as strategies and calculators see it."""
    query = select(CallRow).where(CallRow.task_id == row.id).order_by(CallRow.position)
    calls = (await session.scalars(query)).all()
    return Task(
        task_id=row.id,
        session_id=row.session_id,
        calls=await asyncio.to_thread(lambda: tuple(map(_call_picture, calls))),
        labels=frozenset(row.labels),
        marked=row.marked,
        metadata=row.meta,
    )


def _call_picture(row: CallRow) -> Call:
    return Call(
        task_id=row.task_id,
        position=row.position,
        request=unpack(row.request),
        answer=unpack(row.answer),
        msg_id=row.msg_id,
        latency=row.latency,
        started_at=row.started_at,
    )


async def delete_older(session: AsyncSession, before: float, limit: int) -> int:
    """Delete tasks untouched since this time, with their calls, groups and runs; returns how many.

    A group that is being committed at this moment keeps its task until the next sweep.
    """
    committing = select(GroupRow.task_id).where(GroupRow.state == "committing")
    due = select(TaskRow.id).where(TaskRow.updated_at < before, TaskRow.id.not_in(committing))
    due = due.order_by(TaskRow.updated_at).limit(limit)
    ids = (await session.scalars(due)).all()
    await session.execute(delete(TaskRow).where(TaskRow.id.in_(ids)))
    await session.execute(delete(MarkRow).where(MarkRow.created_at < before, MarkRow.state != "waiting"))
    return len(ids)


def _apply(mark: MarkRow, task: TaskRow) -> None:
    mark.state = "applied"
    _mark(task, True, frozenset(mark.labels), mark.meta)


def _mark(task: TaskRow, marked: bool, labels: frozenset[str], metadata: Mapping[str, Any]) -> None:
    """Add to what is known of a task, and have it decided anew with that."""
    task.marked = task.marked or marked
    task.labels = sorted(labels.union(task.labels))
    task.meta = {**task.meta, **metadata}
    task.decided = False
    task.revision += 1
