"""Tasks in the store: marks are applied, complete tasks are read for a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.selection.decision import Decision
from slipstream.store import feedback
from slipstream.store.bodies import unpack
from slipstream.store.msg_ids import newest_call
from slipstream.store.tables import CallRow, GroupRow, MarkRow, TaskRow
from slipstream.trajectory import Call, Task


@dataclass(slots=True)
class PendingTask:
    """A task's row while calls are added to it, and how many it has. `stored`: there is a row of it in the store."""

    session_id: str
    calls: int
    stored: bool
    state: str = "open"
    revision: int = 0
    marked: bool = False
    labels: list[str] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    decided: bool = False
    selected: bool = False
    reason: str | None = None


async def add_mark(session: AsyncSession, mark: MarkRow) -> bool:
    """Store a mark; apply it where what it names is stored. Returns True when a run is to be scored again with it."""
    session.add(mark)
    task_id = mark.task_id
    if mark.msg_id is not None:
        call_pk = await newest_call(session, mark.msg_id)
        task_id = await session.scalar(select(CallRow.task_id).where(CallRow.id == call_pk))
    task = await session.get(TaskRow, task_id) if task_id is not None else None
    if task is None:
        return False
    apply_mark(mark, task)
    return await feedback.score_task_again(session, task.id)


async def expire_marks(session: AsyncSession, now: float) -> None:
    """Marks that waited in vain."""
    late = (MarkRow.state == "waiting", MarkRow.expires_at <= now)
    await session.execute(update(MarkRow).where(*late).values(state="expired"))


async def complete_idle(session: AsyncSession, before: float) -> int:
    """Tasks without a new call since this time are complete; returns how many."""
    open_ = (TaskRow.decided.is_(False), TaskRow.state == "open")  # an open task is never decided: by that index
    idle = update(TaskRow).where(*open_, TaskRow.updated_at < before).values(state="complete")
    return (await session.execute(idle)).rowcount  # type: ignore[attr-defined,no-any-return]


async def undecided(session: AsyncSession, limit: int) -> Sequence[str]:
    """Complete tasks without a decision, oldest first."""
    query = select(TaskRow.id).where(TaskRow.state == "complete", TaskRow.decided.is_(False))
    return (await session.scalars(query.order_by(TaskRow.updated_at).limit(limit))).all()


async def take_selected(session: AsyncSession, task_ids: Sequence[str]) -> Sequence[str]:
    """Those of these tasks that were selected before; they stay so and are decided from here on, with nobody asked
    (and no budget spent) again."""
    query = select(TaskRow.id).where(TaskRow.id.in_(task_ids), TaskRow.selected.is_(True))
    selected = (await session.scalars(query)).all()
    if selected:
        taken = update(TaskRow).where(TaskRow.id.in_(selected)).values(decided=True)
        await session.execute(taken.execution_options(synchronize_session=False))
    return selected


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
    return len(ids)


async def delete_older_marks(session: AsyncSession, before: float, limit: int) -> int:
    """Delete marks posted before this time that no longer wait; returns how many."""
    spent = select(MarkRow.id).where(MarkRow.created_at < before, MarkRow.state != "waiting")
    ids = (await session.scalars(spent.order_by(MarkRow.created_at).limit(limit))).all()
    await session.execute(delete(MarkRow).where(MarkRow.id.in_(ids)))
    return len(ids)


def decide(task: TaskRow | PendingTask, decision: Decision) -> None:
    """Write down what was decided on a task."""
    task.selected, task.reason = decision.selected, decision.reason
    if decision.labels:
        task.labels = sorted(decision.labels.union(task.labels))
    if decision.metadata:
        task.meta = {**decision.metadata, **task.meta}


def apply_mark(mark: MarkRow, task: TaskRow | PendingTask) -> None:
    mark.state = "applied"
    note(task, True, frozenset(mark.labels), mark.meta)


def note(task: TaskRow | PendingTask, marked: bool, labels: frozenset[str], metadata: Mapping[str, Any]) -> None:
    """Add to what is known of a task, and have it decided anew with that."""
    task.marked = task.marked or marked
    if labels:
        task.labels = sorted(labels.union(task.labels))
    if metadata:
        task.meta = {**task.meta, **metadata}
    task.decided = False
    task.revision += 1
