"""Captured calls come into the store, a batch at a time: each at the end of its task, with what waited for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.dialects.form import Dialect
from slipstream.jsontext import to_json
from slipstream.selection.decision import Decision
from slipstream.serving.served import Served
from slipstream.store import erasure, feedback, replaced_answers, scoring_again, segments, tasks
from slipstream.store.bulk import Rows, batches, insert_rows, update_rows
from slipstream.store.clock_skew import TOLERATED
from slipstream.store.replaced_answers import Answer, Attempt, Replaced, Stored
from slipstream.store.segments import NewRequest, Segment
from slipstream.store.states import TaskState, move
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.feedback import MarkRow
from slipstream.store.tables.rollouts import LiveScoreRow
from slipstream.store.tasks import PendingTask, apply_mark, decide, note
from slipstream.tenants import tenant_of


class NewCall(NamedTuple):
    """A captured call with its place, ready to be stored: redacted, complete, and its answers packed.

    Attributes:
        session_id, task_id, msg_id: as they are in the store, with the tenant.
        new_task: nothing of its task can be in the store: its id was made for this call.
        decision: on the task as it is with this first call; None where it is left to be made.
        dialect: in which the agent asked.
        problem: the reason why the policy cannot be asked this.
        original: the request and the answer as they came; None where that is the chat form.
        served: who answered it; None where no share was set.
        replaces: the earlier attempt of which it is a retry.
    """

    session_id: str
    task_id: str
    request: NewRequest
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
    dialect: Dialect = Dialect.CHAT
    problem: str | None = None
    original: tuple[NewRequest, bytes] | None = None
    served: Served | None = None
    replaces: Stored | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """Work that follows from storing calls.

    Attributes:
        undecided: there are complete tasks to be decided, or selected ones whose runs are to be planned.
        rescore: runs are to be scored again, because their task has other calls now, or of feedback that had waited
            for these calls.
        segments: the segments that were stored, with their ids; they are there once this is committed.
    """

    undecided: bool
    rescore: bool
    segments: Mapping[Segment, int] = field(default_factory=dict)


async def add_calls(session: AsyncSession, calls: Sequence[NewCall], now: float) -> Added:
    """Store calls, each at the end of its task, with the marks and the feedback that waited for them. A retry takes the
    row of the attempt before it, and keeps the runs that were planned for that row; where both are among these calls,
    only the later one is stored, and the earlier one says what it says of its task. A call is not stored if its session
    or task was deleted after the call began.
    """
    ahead = now + TOLERATED
    first_start = min((call.started_at if call.started_at <= ahead else 0.0 for call in calls), default=now)
    if erased := await erasure.standing(session, first_start):
        gone = [call for call in calls if _is_erased(call, erased, ahead)]
        calls = [call for call in calls if not _is_erased(call, erased, ahead)]
        names = [call.msg_id for call in gone if call.msg_id], list({call.task_id for call in gone})
        await erasure.forget_waiting(session, *names)
    pending = await _stored_tasks(session, {call.task_id for call in calls if not call.new_task})
    first_end = min((call.started_at + call.latency for call in calls), default=now)
    # nearly always nothing waits, which one small query tells
    waits = select(tasks.marks_may_wait(now), *feedback.may_wait(first_end))
    some_marks, *some_feedback = (await session.execute(waits)).one()
    marks = dict[tuple[str, str | None], list[MarkRow]]()
    if some_marks:
        marks = await tasks.waiting_marks(session, [(call.task_id, call.msg_id) for call in calls], now)
    originals = [call.original[0] for call in calls if call.original is not None]
    kept = await segments.add(session, [*(call.request for call in calls), *originals])
    of_originals = iter(kept.columns[len(calls) :])
    attempts = {call.replaces.msg_id for call in calls if call.replaces is not None and call.replaces.msg_id}
    got = await feedback.waited_for(session, attempts) if some_feedback[0] else set()
    places, by_name, changed = list[_Place](), dict[tuple[str, Stored], _Place](), set[str]()
    for call, columns in zip(calls, kept.columns, strict=False):  # followed by those of the originals
        task = pending.get(call.task_id)
        if task is None:
            task = pending[call.task_id] = PendingTask(call.session_id, calls=0, stored=False)
        elif not task.calls:
            task.session_id = call.session_id  # it was opened by a replay, which need not know its session
        original = (None, None) if call.original is None else next(of_originals)
        place = None
        if call.replaces is not None and call.replaces.msg_id not in got:  # else its user has got that answer
            place = by_name.pop((call.task_id, call.replaces), None)
        if place is not None:
            place.earlier.append((place.call, place.row))
            place.call, place.row = call, _call_row(call, place.row[1], columns, original)
        else:
            tried = call.replaces
            before = None if tried is None else await replaced_answers.attempt(session, call.task_id, tried)
            place = _Place(call, _call_row(call, task.calls, columns, original), before)
            places.append(place)
            task.calls += before is None
        by_name[call.task_id, Stored(call.msg_id, call.started_at)] = place
        task.state = move(task.state, TaskState.COMPLETE if call.completes else TaskState.OPEN)
        note(task, call.marked, call.labels, call.metadata)
        if call.decision is not None and task.revision == 1:
            decide(task, call.decision)
            task.decided = not call.decision.selected  # the runs of a selected one are yet to be planned
        if marks:
            for mark in [*marks.pop(("task_id", call.task_id), ()), *marks.pop(("msg_id", call.msg_id), ())]:
                apply_mark(mark, task)
                changed.add(call.task_id)

    await _write_tasks(session, pending, now)
    appended = [place for place in places if place.before is None]
    again = [place for place in places if place.before is not None]
    rows = [place.row for place in appended]
    await _replace(session, again)
    changed.update(place.call.task_id for place in again)
    with_runs = [name for name, task in pending.items() if task.has_runs]
    rescore = await scoring_again.score_tasks_again(session, [name for name in with_runs if name in changed])
    # further calls alone: once a turn, at its end
    ended = [name for name in with_runs if name not in changed and pending[name].state == TaskState.COMPLETE]
    rescore |= await scoring_again.score_tasks_again(session, ended, dropped=False)
    if any(some_feedback):
        refs = [_refs(place.call, pending[place.call.task_id].session_id) for place in (*appended, *again)]
        awaited = await feedback.awaited(session, chain.from_iterable(refs), first_end)
        new = [place.call for place in appended]
        rows, matched = await _match_feedback(session, new, rows, refs[: len(appended)], awaited, now)
        rescore |= matched
        for place, named in zip(again, refs[len(appended) :], strict=True):
            if not awaited.isdisjoint(named):
                ended_at = place.call.started_at + place.call.latency
                rescore |= await feedback.match_waiting(session, named, now, ended_at)
    await insert_rows(session, CallRow, _CALL_COLUMNS, rows)
    await _note_replaced(session, [place for place in places if place.earlier or place.before])
    undecided = any(task.state == TaskState.COMPLETE and not task.decided for task in pending.values())
    return Added(undecided, rescore, kept.numbers)


_TASK_COLUMNS = ("id", "session_id", "tenant", "state", "revision", "marked", "labels", "meta", "decided", "selected",
                 "reason", "created_at", "updated_at")  # fmt: skip
_CHANGING = ("session_id", "state", "revision", "marked", "labels", "meta", "decided", "updated_at")
_CALL_COLUMNS = ("task_id", "position", "msg_id", "request", "answer", "latency", "started_at", "dialect", "problem",
                 "original_request", "original_answer", "segment_id", "original_segment_id", "variant", "arm", "unit",
                 "fell_back", "opted_out")  # fmt: skip


@dataclass(slots=True)
class _Place:
    """The place of a call in its task.

    Attributes:
        call, row: the call that is stored there, and its row.
        before: the stored attempt of which it is a retry: the row is updated.
        earlier: the attempts before it in the same batch, with the rows that they would have had.
    """

    call: NewCall
    row: tuple[Any, ...]
    before: Attempt | None
    earlier: list[tuple[NewCall, tuple[Any, ...]]] = field(default_factory=list)


_SEGMENTS = slice(_CALL_COLUMNS.index("segment_id"), _CALL_COLUMNS.index("original_segment_id") + 1)

_UNSERVED = (None, None, None, False, False)
"""Values of a call that was answered while no share was set."""

_Columns = tuple[bytes | None, int | None]
"""A request as it is kept: of the call and of its last segment."""


async def _replace(session: AsyncSession, places: Sequence[_Place]) -> None:
    """Update the rows of stored attempts."""
    before = {place.before.pk: place for place in places if place.before is not None}
    if before:
        await update_rows(session, CallRow, _CALL_COLUMNS[2:], [(*place.row[2:], pk) for pk, place in before.items()])
        await session.execute(delete(LiveScoreRow).where(LiveScoreRow.call_id.in_(before)))  # of the answers before


async def _note_replaced(session: AsyncSession, places: Sequence[_Place]) -> None:
    """Remember the attempts whose places were taken, and delete what only they needed."""
    new = [place.row[:2] for place in places if place.before is None]
    pks = dict[tuple[str, int], int]()
    for some in batches(new):
        query = select(CallRow.task_id, CallRow.position, CallRow.id)
        query = query.where(tuple_(CallRow.task_id, CallRow.position).in_(some))
        pks.update({(task_id, position): pk for task_id, position, pk in await session.execute(query)})
    replaced, left, needed = list[Replaced](), set[int | None](), set[int | None]({None})
    for place in places:
        answers = [Answer(call.msg_id, call.answer) for call, _ in place.earlier]
        if (before := place.before) is not None:
            answers.insert(0, before.answer)
            left.update(before.segments)
        pk = before.pk if before is not None else pks[place.row[0], place.row[1]]
        replaced.append(Replaced(pk, answers, Answer(place.call.msg_id, place.call.answer)))
        left.update(number for _, row in place.earlier for number in row[_SEGMENTS])
        needed.update(place.row[_SEGMENTS])
    await replaced_answers.note(session, replaced)
    if unused := [number for number in left - needed if number is not None]:
        await segments.delete_unused(session, unused)


async def _stored_tasks(session: AsyncSession, task_ids: set[str]) -> dict[str, PendingTask]:
    last = select(func.max(CallRow.position)).where(CallRow.task_id == TaskRow.id).scalar_subquery()
    query = select(
        TaskRow.id, TaskRow.session_id, last, TaskRow.state, TaskRow.revision, TaskRow.marked, TaskRow.labels,
        TaskRow.meta, TaskRow.decided, TaskRow.selected, TaskRow.reason, scoring_again.has_open_groups(),
    )  # fmt: skip
    found = {}
    for some in batches(sorted(task_ids)):
        for task_id, session_id, position, *rest in await session.execute(query.where(TaskRow.id.in_(some))):
            found[task_id] = PendingTask(session_id, -1 if position is None else position, True, *rest)
            found[task_id].calls += 1
    return found


async def _write_tasks(session: AsyncSession, pending: Mapping[str, PendingTask], now: float) -> None:
    new, changed = [], []
    for task_id, task in pending.items():
        labels = to_json(task.labels).decode() if task.labels else "[]"
        meta = to_json(task.meta).decode() if task.meta else "{}"
        now_so = (task.state, task.revision, task.marked, labels, meta, task.decided)
        if task.stored:
            changed.append((task.session_id, *now_so, now, task_id))
        else:
            new.append((task_id, task.session_id, tenant_of(task_id), *now_so, task.selected, task.reason, now, now))
    await insert_rows(session, TaskRow, _TASK_COLUMNS, new)
    await update_rows(session, TaskRow, _CHANGING, changed)


async def _match_feedback(
    session: AsyncSession,
    calls: Sequence[NewCall],
    rows: Rows,
    refs: Sequence[Sequence[feedback.Ref]],
    awaited: Set[tuple[str, str]],
    now: float,
) -> tuple[Rows, bool]:
    """Insert the calls that feedback waits for, and those before them: each is matched while it is the newest.

    Returns:
        The rows that are left to be inserted, and whether a run is to be scored again.
    """
    rescore, done = False, 0
    for number, (call, names) in enumerate(zip(calls, refs, strict=True), start=1):
        if not awaited.isdisjoint(names):
            await insert_rows(session, CallRow, _CALL_COLUMNS, rows[done:number])
            done = number
            rescore |= await feedback.match_waiting(session, names, now, call.started_at + call.latency)
            await session.flush()
    return rows[done:], rescore


def _is_erased(call: NewCall, erased: Mapping[tuple[str, str], float], ahead: float) -> bool:
    """Return whether a call may be of before a deletion: one later than `ahead` has a time of a clock that was set back
    since, and the deletion a time of either clock."""
    names = ("session_id", call.session_id), ("task_id", call.task_id)
    return any(name in erased and (call.started_at <= erased[name] or call.started_at > ahead) for name in names)


def _call_row(call: NewCall, position: int, request: _Columns, original: _Columns) -> tuple[Any, ...]:
    place = call.task_id, position, call.msg_id
    about = call.latency, call.started_at, call.dialect, call.problem
    originals = original[0], None if call.original is None else call.original[1]
    served = call.served
    who = _UNSERVED if served is None else (
        served.variant, served.arm, served.unit_name, served.fell_back, served.opted_out
    )  # fmt: skip
    return (*place, request[0], call.answer, *about, *originals, request[1], original[1], *who)


def _refs(call: NewCall, session_id: str) -> list[feedback.Ref]:
    refs: list[feedback.Ref] = [("task_id", call.task_id), ("session_id", session_id)]
    return [*refs, ("msg_id", call.msg_id)] if call.msg_id else refs
