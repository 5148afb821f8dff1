"""Tasks as strategies see them, and answered runs as reward calculators do: many at a time, by a few statements, so
that what they have in common is read once."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import null, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.memory.parsing import kept_of
from slipstream.store import feedback_views, segments, shadow_requests
from slipstream.store.bodies import unpack
from slipstream.store.segments import StoredRequest
from slipstream.store.states import RunState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.tenants import name_of
from slipstream.trajectory import Call, PolicyCall, Run, Task

_ROWS = 16
"""Rows of which the bodies are unpacked at once to see how large they are."""


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run that is to be scored, by which sidecar, and the revision that it is seen at."""

    pk: int
    owner: int
    revision: int
    run: Run


@dataclass(frozen=True, slots=True)
class DueSize:
    """A run that is to be scored, before it is read.

    Attributes:
        size: bytes of memory that its own calls take once they are read; its task takes more.
    """

    pk: int
    owner: int
    revision: int
    task_id: str
    group_id: str
    run_id: int
    size: int


async def sizes(session: AsyncSession, task_ids: Collection[str]) -> dict[str, int]:
    """The bytes of memory that each of these tasks takes once it is read."""
    found = dict.fromkeys(task_ids, 0)
    calls = (await session.scalars(select(CallRow.id).where(CallRow.task_id.in_(task_ids)))).all()
    columns = select(CallRow.task_id, CallRow.request, CallRow.segment_id, CallRow.answer)
    for at in range(0, len(calls), _ROWS):
        rows = (await session.execute(columns.where(CallRow.id.in_(calls[at : at + _ROWS])))).all()
        requests = await segments.stored(session, [(row.request, row.segment_id) for row in rows])
        bodies = [(StoredRequest(row.answer), request) for row, request in zip(rows, requests, strict=True)]
        for row, size in zip(rows, await asyncio.to_thread(_memory, bodies), strict=True):
            found[row.task_id] += size
    return found


async def due_sizes(session: AsyncSession, owner: int, pks: Collection[int]) -> list[DueSize]:
    """These answered runs, where they are still this sidecar's to score; the longest due first."""
    found = dict.fromkeys(pks, 0)
    calls = (await session.execute(select(RunCallRow.run_pk, RunCallRow.id).where(RunCallRow.run_pk.in_(pks)))).all()
    shadow = select(RunRow.id, RunRow.request, null().label("segment_id"), RunRow.answer)
    replayed = select(RunCallRow.id, RunCallRow.request, RunCallRow.segment_id, RunCallRow.answer)
    for columns, key, of in (
        (shadow.where(RunRow.request.is_not(None)), RunRow.id, {pk: pk for pk in pks}),
        (replayed, RunCallRow.id, {call: pk for pk, call in calls}),
    ):
        ids = list(of)
        for at in range(0, len(ids), _ROWS):
            rows = (await session.execute(columns.where(key.in_(ids[at : at + _ROWS])))).all()
            requests = await segments.stored(session, [(row.request, row.segment_id) for row in rows])
            bodies = [(StoredRequest(row.answer), request) for row, request in zip(rows, requests, strict=True)]
            for row, size in zip(rows, await asyncio.to_thread(_memory, bodies), strict=True):
                found[of[row.id]] += size
    runs = select(RunRow.id, RunRow.revision, GroupRow.task_id, RunRow.group_id, RunRow.run_id)
    runs = runs.join(GroupRow, GroupRow.id == RunRow.group_id)
    runs = runs.where(RunRow.state == RunState.ANSWERED, RunRow.owner == owner, RunRow.id.in_(pks))
    due = await session.execute(runs.order_by(RunRow.due_at))
    return [
        DueSize(pk, owner, revision, task_id, group_id, run_id, found[pk])
        for pk, revision, task_id, group_id, run_id in due
    ]


def _memory(bodies: Sequence[Sequence[StoredRequest]]) -> list[int]:
    """The bytes of memory that the bodies of each row take once they are read; they are unpacked one at a time."""
    return [sum(kept_of(body.text()) for body in some) for some in bodies]


async def tasks(session: AsyncSession, task_ids: Collection[str]) -> dict[str, Task]:
    """These tasks, with all their calls, as strategies and calculators see them."""
    if not task_ids:
        return {}
    query = select(CallRow).where(CallRow.task_id.in_(task_ids)).order_by(CallRow.task_id, CallRow.position)
    rows = (await session.scalars(query)).all()
    calls: dict[str, list[Call]] = {}
    requests = await segments.stored(session, [(row.request, row.segment_id) for row in rows])
    made = await asyncio.to_thread(lambda: list(map(production_call, rows, requests)))
    for row, call in zip(rows, made, strict=True):
        calls.setdefault(row.task_id, []).append(call)
    found = await session.scalars(select(TaskRow).where(TaskRow.id.in_(task_ids)))
    return {
        row.id: Task(
            task_id=name_of(row.id),
            session_id=name_of(row.session_id),
            calls=tuple(calls.get(row.id, ())),
            labels=frozenset(row.labels),
            marked=row.marked,
            metadata=row.meta,
            tenant=row.tenant,
        )
        for row in found
    }


async def due_runs(session: AsyncSession, owner: int, pks: Collection[int]) -> list[DueRun]:
    """These answered runs, where they are still this sidecar's to score; the longest due first."""
    query = (
        select(RunRow, GroupRow.task_id, CallRow.id, CallRow.position)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .outerjoin(CallRow, CallRow.id == GroupRow.call_id)
        .where(RunRow.state == RunState.ANSWERED, RunRow.owner == owner, RunRow.id.in_(pks))
        .order_by(RunRow.due_at)
    )
    rows = (await session.execute(query)).all()
    read_models = await tasks(session, {task_id for _, task_id, _, _ in rows})
    about_runs = await feedback_views.about_runs(session, {run.id for run, *_ in rows})
    last_calls = await _last_calls(session, {task_id for _, task_id, call, _ in rows if call is None})
    compared = {run.id: last_calls.get(task_id) if call is None else call for run, task_id, call, _ in rows}
    about_calls = await feedback_views.about_calls(session, {pk for pk in compared.values() if pk is not None})
    made_by_agents = await replayed(session, {run.id for run, _, call, _ in rows if call is None})

    def made(run: RunRow, task_id: str, position: int | None) -> tuple[PolicyCall, ...]:
        if position is None:
            return tuple(policy_call(row, request.read()) for row, request in made_by_agents.get(run.id, ()))
        assert run.request is not None, "an answered run was sent"
        call = read_models[task_id].calls[position].request
        return (policy_call(run, shadow_requests.completed(unpack(run.request), call)),)

    calls_of = await asyncio.to_thread(lambda: [made(run, task_id, position) for run, task_id, _, position in rows])
    due = []
    for (run, task_id, call, position), calls in zip(rows, calls_of, strict=True):
        task, replay = read_models[task_id], call is None
        ending = run.ending or {}
        said = ending.get("metadata")
        picture = Run(
            task=replace(task, metadata={**task.metadata, **said}) if said else task,
            group_id=run.group_id,
            run_id=run.run_id,
            calls=calls,
            production=None if replay else task.calls[position],
            kind="agent_replay" if replay else "shadow_call",
            feedback=about_runs.get(run.id, ()),
            production_feedback=about_calls.get(compared[run.id], ()),
            blocked=tuple(one["tool"] for one in ending.get("side_effects", ()) if one["outcome"] == "blocked"),
        )
        due.append(DueRun(run.id, owner, run.revision, picture))
    return due


async def _last_calls(session: AsyncSession, task_ids: Collection[str]) -> dict[str, int]:
    """The last call of each task that was captured: what agents that replay it are compared with."""
    query = select(CallRow.task_id, CallRow.id).where(CallRow.task_id.in_(task_ids)).order_by(CallRow.position)
    return {row.task_id: row.id for row in await session.execute(query)}


async def replayed(session: AsyncSession, pks: Collection[int]) -> dict[int, list[tuple[RunCallRow, StoredRequest]]]:
    """The calls of these agent replays, in the order in which they began."""
    query = select(RunCallRow).where(RunCallRow.run_pk.in_(pks)).order_by(RunCallRow.started_at, RunCallRow.id)
    rows = (await session.scalars(query)).all()
    requests = await segments.stored(session, [(row.request, row.segment_id) for row in rows])
    found: dict[int, list[tuple[RunCallRow, StoredRequest]]] = {}
    for row, request in zip(rows, requests, strict=True):
        found.setdefault(row.run_pk, []).append((row, request))
    return found


def policy_call(row: RunRow | RunCallRow, request: Mapping[str, Any]) -> PolicyCall:
    """An answer of the policy to this request."""
    assert row.answer is not None, "an answered run has an answer"
    return PolicyCall(
        request=request,
        answer=unpack(row.answer),
        msg_id=row.msg_id or "",
        latency=row.latency or 0.0,
        policy_version=row.policy_version,
    )


def production_call(row: CallRow, request: StoredRequest) -> Call:
    """A captured call with its request."""
    return Call(
        task_id=name_of(row.task_id),
        position=row.position,
        request=request.read(),
        answer=unpack(row.answer),
        msg_id=None if row.msg_id is None else name_of(row.msg_id),
        latency=row.latency,
        started_at=row.started_at,
        problem=row.problem,
        dialect=row.dialect,
        variant=row.variant,
    )
