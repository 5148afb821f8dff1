"""Tasks as strategies see them, and answered runs as reward calculators do: many at a time, by a few statements, so
that what they have in common is read once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import feedback
from slipstream.store.bodies import unpack
from slipstream.store.tables import CallRow, GroupRow, RunRow, TaskRow
from slipstream.trajectory import Call, PolicyCall, Run, Task


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run that is to be scored, and the revision that it is seen at."""

    pk: int
    revision: int
    run: Run


async def tasks(session: AsyncSession, task_ids: Collection[str]) -> dict[str, Task]:
    """These tasks, with all their calls, as strategies and calculators see them."""
    if not task_ids:
        return {}
    query = select(CallRow).where(CallRow.task_id.in_(task_ids)).order_by(CallRow.task_id, CallRow.position)
    rows = (await session.scalars(query)).all()
    calls: dict[str, list[Call]] = {}
    for call in await asyncio.to_thread(lambda: list(map(_production_call, rows))):
        calls.setdefault(call.task_id, []).append(call)
    found = await session.scalars(select(TaskRow).where(TaskRow.id.in_(task_ids)))
    return {
        row.id: Task(
            task_id=row.id,
            session_id=row.session_id,
            calls=tuple(calls.get(row.id, ())),
            labels=frozenset(row.labels),
            marked=row.marked,
            metadata=row.meta,
        )
        for row in found
    }


async def due_runs(session: AsyncSession, limit: int, now: float) -> list[DueRun]:
    """Answered runs whose grace is over, oldest first."""
    query = (
        select(RunRow, GroupRow.task_id, CallRow.id, CallRow.position)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .join(CallRow, CallRow.id == GroupRow.call_id)
        .where(RunRow.state == "answered", RunRow.due_at <= now)
        .order_by(RunRow.due_at)
        .limit(limit)
    )
    rows = (await session.execute(query)).all()
    pictures = await tasks(session, {task_id for _, task_id, _, _ in rows})
    about_runs = await feedback.about_runs(session, {run.id for run, *_ in rows})
    about_calls = await feedback.about_calls(session, {call for _, _, call, _ in rows})
    policy_calls = await asyncio.to_thread(_policy_calls, [run for run, *_ in rows])
    return [
        DueRun(
            run.id,
            run.revision,
            Run(
                task=pictures[task_id],
                group_id=run.group_id,
                run_id=run.run_id,
                calls=(policy_call,),
                production=pictures[task_id].calls[position],
                feedback=about_runs.get(run.id, ()),
                production_feedback=about_calls.get(call, ()),
            ),
        )
        for (run, task_id, call, position), policy_call in zip(rows, policy_calls, strict=True)
    ]


def _policy_calls(rows: Sequence[RunRow]) -> list[PolicyCall]:
    requests: dict[bytes, dict[str, Any]] = {}  # the runs of a group have the same
    calls = []
    for row in rows:
        assert row.request is not None, "an answered run was sent"
        assert row.answer is not None, "and answered"
        if row.request not in requests:
            requests[row.request] = unpack(row.request)
        calls.append(
            PolicyCall(
                request=requests[row.request],
                answer=unpack(row.answer),
                msg_id=row.msg_id or "",
                latency=row.latency or 0.0,
                policy_version=row.policy_version,
            )
        )
    return calls


def _production_call(row: CallRow) -> Call:
    return Call(
        task_id=row.task_id,
        position=row.position,
        request=unpack(row.request),
        answer=unpack(row.answer),
        msg_id=row.msg_id,
        latency=row.latency,
        started_at=row.started_at,
    )
