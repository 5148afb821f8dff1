"""Tasks in the store: captured calls come in, marks are applied, complete tasks are read for a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import delete, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.jsontext import to_json
from slipstream.selection.decision import Decision
from slipstream.store import feedback
from slipstream.store.bodies import unpack
from slipstream.store.bulk import Rows, insert_rows, update_rows
from slipstream.store.msg_ids import newest_call
from slipstream.store.tables import CallRow, GroupRow, MarkRow, TaskRow
from slipstream.trajectory import Call, Task


class NewCall(NamedTuple):
    """A captured call with its place, ready to be stored: redacted, complete, and its bodies packed.

    Attributes:
        new_task: nothing of its task can be in the store: its id was made for this call.
        decision: on the task as it is with this first call; None where it is left to be made.
    """

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
    new_task: bool = False
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """What storing calls leaves to be done.

    Attributes:
        undecided: there are complete tasks to be decided, or selected ones whose runs are to be planned.
        rescore: runs are to be scored again, because of feedback that had waited for these calls.
    """

    undecided: bool
    rescore: bool


@dataclass(slots=True)
class _Pending:
    """A task while calls are added to it."""

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


async def add_calls(session: AsyncSession, calls: Sequence[NewCall], now: float) -> Added:
    """Store calls, each at the end of its task, with the marks and the feedback that waited for them."""
    pending = await _stored_tasks(session, {call.task_id for call in calls if not call.new_task})
    marks = await _waiting_marks(session, calls, now)
    rows = []
    for call in calls:
        task = pending.get(call.task_id)
        if task is None:
            task = pending[call.task_id] = _Pending(call.session_id, calls=0, stored=False)
        rows.append(_call_row(call, task.calls))
        task.calls += 1
        task.state = "complete" if call.completes else "open"
        _note(task, call.marked, call.labels, call.metadata)
        if call.decision is not None and task.revision == 1:
            decide(task, call.decision)
            task.decided = not call.decision.selected  # the runs of a selected one are yet to be planned
        if marks:
            for mark in [*marks.pop(("task_id", call.task_id), ()), *marks.pop(("msg_id", call.msg_id), ())]:
                _apply(mark, task)

    await _write_tasks(session, pending, now)
    rescore = await _write_calls(session, calls, rows, pending, now)
    undecided = any(task.state == "complete" and not task.decided for task in pending.values())
    return Added(undecided, rescore)


_TASK_COLUMNS = ("id", "session_id", "state", "revision", "marked", "labels", "meta", "decided", "selected", "reason",
                 "created_at", "updated_at")  # fmt: skip
_CHANGING = ("state", "revision", "marked", "labels", "meta", "decided", "updated_at")
_CALL_COLUMNS = ("task_id", "position", "msg_id", "request", "answer", "latency", "started_at")

_AT_ONCE = 500
"""Names in one query: databases bound the parameters of a statement."""


async def _stored_tasks(session: AsyncSession, task_ids: set[str]) -> dict[str, _Pending]:
    last = select(func.max(CallRow.position)).where(CallRow.task_id == TaskRow.id).scalar_subquery()
    query = select(
        TaskRow.id, TaskRow.session_id, last, TaskRow.state, TaskRow.revision, TaskRow.marked, TaskRow.labels,
        TaskRow.meta, TaskRow.decided, TaskRow.selected, TaskRow.reason,
    )  # fmt: skip
    found = {}
    names = sorted(task_ids)
    for at in range(0, len(names), _AT_ONCE):
        some = query.where(TaskRow.id.in_(names[at : at + _AT_ONCE]))
        for task_id, session_id, position, *rest in await session.execute(some):
            found[task_id] = _Pending(session_id, -1 if position is None else position, True, *rest)
            found[task_id].calls += 1
    return found


async def _waiting_marks(
    session: AsyncSession, calls: Sequence[NewCall], now: float
) -> dict[tuple[str, str | None], list[MarkRow]]:
    """The marks that wait for these calls, by what they name."""
    marks: dict[tuple[str, str | None], list[MarkRow]] = {}
    waiting = (MarkRow.state == "waiting", MarkRow.expires_at > now)
    if not await session.scalar(select(exists().where(*waiting))):
        return marks
    for at in range(0, len(calls), _AT_ONCE):
        some = calls[at : at + _AT_ONCE]
        task_ids, msg_ids = {call.task_id for call in some}, {call.msg_id for call in some if call.msg_id}
        names = or_(MarkRow.task_id.in_(task_ids), MarkRow.msg_id.in_(msg_ids))
        for mark in await session.scalars(select(MarkRow).where(names, *waiting)):
            name = ("msg_id", mark.msg_id) if mark.task_id is None else ("task_id", mark.task_id)
            if mark not in marks.setdefault(name, []):
                marks[name].append(mark)
    return marks


async def _write_tasks(session: AsyncSession, pending: Mapping[str, _Pending], now: float) -> None:
    new, changed = [], []
    for task_id, task in pending.items():
        labels = to_json(task.labels).decode() if task.labels else "[]"
        meta = to_json(task.meta).decode() if task.meta else "{}"
        now_so = (task.state, task.revision, task.marked, labels, meta, task.decided)
        if task.stored:
            changed.append((*now_so, now, task_id))
        else:
            new.append((task_id, task.session_id, *now_so, task.selected, task.reason, now, now))
    await insert_rows(session, TaskRow, _TASK_COLUMNS, new)
    await update_rows(session, TaskRow, _CHANGING, changed)


async def _write_calls(
    session: AsyncSession, calls: Sequence[NewCall], rows: Rows, pending: Mapping[str, _Pending], now: float
) -> bool:
    """Insert the calls. Feedback that waits for one is matched as soon as that one is the newest of its session.

    Returns:
        True when a run is to be scored again, because of that feedback.
    """

    def refs(call: NewCall) -> list[feedback.Ref]:
        given: list[feedback.Ref] = [("task_id", call.task_id), ("session_id", pending[call.task_id].session_id)]
        return [*given, ("msg_id", call.msg_id)] if call.msg_id else given

    first_end = min((call.started_at + call.latency for call in calls), default=now)
    awaited = await feedback.awaited(session, (ref for call in calls for ref in refs(call)), first_end)
    rescore, done = False, 0
    for number, call in enumerate(calls, start=1) if awaited else ():
        if not awaited.isdisjoint(refs(call)):
            await insert_rows(session, CallRow, _CALL_COLUMNS, rows[done:number])
            done = number
            rescore |= await feedback.match_waiting(session, refs(call), now, call.started_at + call.latency)
            await session.flush()
    await insert_rows(session, CallRow, _CALL_COLUMNS, rows[done:])
    return rescore


def _call_row(call: NewCall, position: int) -> tuple[Any, ...]:
    return (call.task_id, position, call.msg_id, call.request, call.answer, call.latency, call.started_at)


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
    _apply(mark, task)
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


def decide(task: TaskRow | _Pending, decision: Decision) -> None:
    """Write down what was decided on a task."""
    task.selected, task.reason = decision.selected, decision.reason
    task.labels = sorted(decision.labels.union(task.labels))
    task.meta = {**decision.metadata, **task.meta}


def _apply(mark: MarkRow, task: TaskRow | _Pending) -> None:
    mark.state = "applied"
    _note(task, True, frozenset(mark.labels), mark.meta)


def _note(task: TaskRow | _Pending, marked: bool, labels: frozenset[str], metadata: Mapping[str, Any]) -> None:
    """Add to what is known of a task, and have it decided anew with that."""
    task.marked = task.marked or marked
    if labels:
        task.labels = sorted(labels.union(task.labels))
    if metadata:
        task.meta = {**task.meta, **metadata}
    task.decided = False
    task.revision += 1
