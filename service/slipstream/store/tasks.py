"""Tasks in the store: marks are applied, complete tasks are read for a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Exists, Select, delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.selection.decision import Decision
from slipstream.store import preferences, quarantine, scoring_again, segments
from slipstream.store.bulk import batches, update_rows
from slipstream.store.msg_ids import named_call
from slipstream.store.states import UNDELIVERED_GROUPS, GroupState, MarkState, TaskState, move
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.feedback import MarkRow
from slipstream.store.tables.runs import GroupRow


@dataclass(slots=True)
class PendingTask:
    """A task's row while calls are added to it, and how many it has.

    Attributes:
        stored: there is a row of it in the store.
        has_runs: calculators may have seen it without these calls.
    """

    session_id: str
    calls: int
    stored: bool
    state: TaskState = TaskState.OPEN
    revision: int = 0
    marked: bool = False
    labels: list[str] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    decided: bool = False
    selected: bool = False
    reason: str | None = None
    has_runs: bool = False


@dataclass(frozen=True, slots=True)
class NewMark:
    """A mark on the task `task_id`, or on the task of the answer `msg_id`, which waits `ttl` seconds for it."""

    id: str
    task_id: str | None
    msg_id: str | None
    labels: list[str]
    metadata: dict[str, Any]
    ttl: float


@dataclass(frozen=True, slots=True)
class AddedMark:
    """The state of a mark that was stored, and whether a run is to be scored again with it."""

    state: MarkState
    rescore: bool


@dataclass(frozen=True, slots=True)
class Undecided:
    """A complete task that is to be decided, or selected and to be planned anew, as it is at this revision."""

    task_id: str
    revision: int
    selected: bool
    tries: int = 0


async def add_mark(session: AsyncSession, new: NewMark, now: float) -> AddedMark:
    """Store a mark, and apply it if what it names is stored."""
    mark = MarkRow(
        id=new.id,
        task_id=new.task_id,
        msg_id=new.msg_id,
        labels=new.labels,
        meta=new.metadata,
        state=MarkState.WAITING,
        created_at=now,
        expires_at=now + new.ttl,
    )
    session.add(mark)
    rescore = await _applied(session, mark)
    return AddedMark(mark.state, rescore)


async def apply_marks_of_stored(session: AsyncSession, now: float) -> None:
    """Apply the marks that wait though what they name is stored: by a clock that was ahead they had expired then."""
    waits = select(MarkRow).where(*_waiting(now))
    for mark in (await session.scalars(waits.order_by(MarkRow.created_at))).all():
        await _applied(session, mark)


async def _applied(session: AsyncSession, mark: MarkRow) -> bool:
    """Apply a mark if what it names is stored. Returns True when a run is to be scored again with it."""
    task_id = mark.task_id
    if mark.msg_id is not None:
        call = await named_call(session, mark.msg_id)
        if call is not None:
            task_id = await session.scalar(select(CallRow.task_id).where(CallRow.id == call.pk))
    task = await session.get(TaskRow, task_id) if task_id is not None else None
    if task is None:
        return False
    apply_mark(mark, task)
    return await scoring_again.score_tasks_again(session, [task.id])


async def apply_waiting_marks(session: AsyncSession, task: TaskRow, now: float) -> None:
    """Apply what was posted about a task before it was stored."""
    waits = select(MarkRow).where(MarkRow.task_id == task.id, *_waiting(now))
    for mark in await session.scalars(waits.order_by(MarkRow.created_at)):
        apply_mark(mark, task)


def marks_may_wait(now: float) -> Exists:
    """Return the condition under which a mark waits for anything at all."""
    return exists().where(*_waiting(now))


async def waiting_marks(
    session: AsyncSession, calls: Sequence[tuple[str, str | None]], now: float
) -> dict[tuple[str, str | None], list[MarkRow]]:
    """Return the marks that wait for calls, by what they name.

    Args:
        calls: the task and the msg_id of each.
    """
    marks: dict[tuple[str, str | None], list[MarkRow]] = {}
    for some in batches(calls):
        task_ids, msg_ids = {task_id for task_id, _ in some}, {msg_id for _, msg_id in some if msg_id}
        names = or_(MarkRow.task_id.in_(task_ids), MarkRow.msg_id.in_(msg_ids))
        for mark in await session.scalars(select(MarkRow).where(names, *_waiting(now))):
            name = ("msg_id", mark.msg_id) if mark.task_id is None else ("task_id", mark.task_id)
            if mark not in marks.setdefault(name, []):
                marks[name].append(mark)
    return marks


def _waiting(now: float) -> tuple[ColumnElement[bool], ...]:
    return MarkRow.state == MarkState.WAITING, MarkRow.expires_at > now


async def expire_marks(session: AsyncSession, now: float) -> None:
    """Marks that waited in vain."""
    late = (MarkRow.state == MarkState.WAITING, MarkRow.expires_at <= now)
    await session.execute(update(MarkRow).where(*late).values(state=move(MarkState.WAITING, MarkState.EXPIRED)))


async def complete_idle(session: AsyncSession, before: float) -> bool:
    """Tasks without a new call since this time are complete. Returns True when a run is to be scored again: what it was
    scored with, before its task went on, is not all."""
    open_ = (
        TaskRow.decided.is_(False),
        TaskRow.state == TaskState.OPEN,
    )  # an open task is never decided: by that index
    idle = update(TaskRow).where(*open_, TaskRow.updated_at < before)
    idle = idle.values(state=move(TaskState.OPEN, TaskState.COMPLETE)).returning(TaskRow.id)
    return await scoring_again.score_tasks_again(session, (await session.scalars(idle)).all(), dropped=False)


async def undecided(session: AsyncSession, owner: int, limit: int) -> list[Undecided]:
    """Complete tasks without a decision, oldest first, but for those that another sidecar is deciding: from here on it
    is this one that does. Of those that were being decided when a process died, one alone is."""
    query = select(TaskRow.id, TaskRow.revision, TaskRow.selected, TaskRow.tries)
    query = query.where(TaskRow.state == TaskState.COMPLETE, TaskRow.decided.is_(False))
    query = query.where(TaskRow.owner.is_(None) | (TaskRow.owner == owner))
    rows = await session.execute(query.order_by(TaskRow.updated_at, TaskRow.id).limit(limit))
    seen = quarantine.without_suspects_but_one([Undecided(*row) for row in rows])
    held = [(owner, task.tries + 1, task.task_id) for task in seen if not task.selected]
    await update_rows(session, TaskRow, ("owner", "tries"), held)
    return seen


async def stay_selected(session: AsyncSession, task_ids: Sequence[str]) -> None:
    """These tasks were selected before, and are decided as they are."""
    if task_ids:
        decided = update(TaskRow).where(TaskRow.id.in_(task_ids)).values(decided=True, owner=None)
        await session.execute(decided.execution_options(synchronize_session=False))


async def record_decisions(
    session: AsyncSession, owner: int, seen: Sequence[Undecided], made: Mapping[str, Decision]
) -> list[str]:
    """Write down what a sidecar decided on tasks, by their ids.

    Returns:
        The tasks that it holds for. To another one a call or a mark came since it was seen, or another sidecar took it
        over: it is decided anew.
    """
    query = select(TaskRow).where(TaskRow.id.in_(made))
    rows = {row.id: row for row in await session.scalars(query)}
    held = []
    for task in seen:
        row = rows.get(task.task_id)
        if row is not None and (row.owner, row.revision) == (owner, task.revision):
            row.decided, row.owner, row.tries = True, None, 0
            decide(row, made[row.id])
            held.append(row.id)
        elif row is not None and row.owner == owner:
            row.tries = 0
    return held


async def delete_older(session: AsyncSession, before: float, limit: int) -> tuple[int, int]:
    """Delete tasks untouched since this time, with their calls, groups and runs.

    A group that is being committed at this moment keeps its task until the next sweep, and so does a replay that began
    since then.
    """
    replay = (GroupRow.kind == "agent_replay") & (GroupRow.updated_at >= before)
    kept = (GroupRow.state == GroupState.COMMITTING) | (GroupRow.state.in_(UNDELIVERED_GROUPS) & replay)
    due = select(TaskRow.id).where(TaskRow.updated_at < before, TaskRow.id.not_in(select(GroupRow.task_id).where(kept)))
    due = due.order_by(TaskRow.updated_at).limit(limit)
    ids = (await session.scalars(due)).all()
    undelivered = select(func.count()).where(GroupRow.task_id.in_(ids), GroupRow.state.in_(UNDELIVERED_GROUPS))
    expired = await session.scalar(undelivered) or 0
    await delete_tasks(session, ids)
    return len(ids), expired


async def delete_tasks(session: AsyncSession, tasks: Select[Any] | Sequence[str]) -> int:
    """Delete tasks by their ids, with all that hangs on them, and what of their conversations no other task needs;
    returns how many. Tasks are deleted in no other way."""
    last = await segments.of_tasks(session, tasks)
    await preferences.leave(session, tasks)
    gone = delete(TaskRow).where(TaskRow.id.in_(tasks)).execution_options(synchronize_session=False)
    done = await session.execute(gone)
    await segments.delete_unused(session, last)
    return int(done.rowcount)  # type: ignore[attr-defined]


async def delete_older_marks(session: AsyncSession, before: float, limit: int) -> int:
    """Delete marks posted before this time that no longer wait; returns how many."""
    spent = select(MarkRow.id).where(MarkRow.created_at < before, MarkRow.state != MarkState.WAITING)
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
    mark.state = move(mark.state, MarkState.APPLIED)
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
