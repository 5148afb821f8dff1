"""Answers in the store as data sets are made of them: a page at a time by index, in an order that does not change.

An export reads short pages and not one long snapshot: SQLite could not shorten its log meanwhile, which production
writes to. What is stored or deleted while it reads may be in it or not; deletions are applied again at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from slipstream.serving.page import PRODUCTION
from slipstream.store import feedback_views, segments, shadow_requests
from slipstream.store.bodies import unpack
from slipstream.store.feedback import has_effect
from slipstream.store.read_models import policy_call, production_call, replayed
from slipstream.store.segments import StoredRequest
from slipstream.store.states import RunState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.feedback import FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow
from slipstream.trajectory import Call, Feedback, PolicyCall


@dataclass(frozen=True, slots=True)
class OfTask:
    """The task of an answer.

    Attributes:
        ref, session_ref: with their tenant.
    """

    ref: str
    session_ref: str
    tenant: str
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ProductionAnswer:
    """An answer that production gave to a user, by its row.

    Attributes:
        last: no call of its task came after it.
    """

    pk: int
    task: OfTask
    call: Call
    feedback: tuple[Feedback, ...]
    last: bool


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A run of the policy that has a reward, by its row."""

    pk: int
    run_id: int
    calls: tuple[PolicyCall, ...]
    reward: float
    breakdown: Mapping[str, float | None]
    version: int | None
    updated_at: float
    feedback: tuple[Feedback, ...]


@dataclass(frozen=True, slots=True)
class GroupOfRuns:
    """A group with its scored runs.

    Attributes:
        production: the call that its runs repeat; None for agent replays.
    """

    id: str
    kind: str
    task: OfTask
    production: ProductionAnswer | None
    runs: tuple[ScoredRun, ...]


async def production_answers(
    session: AsyncSession, after: int, up_to: int, limit: int, tenants: Collection[str] = ()
) -> list[ProductionAnswer]:
    """Answers of production, from behind the one with the row `after` to the one with `up_to`.

    Left out are answers of the lane, which are the policy's.

    Args:
        tenants: whose; empty for all.
    """
    query = _calls(tenants).where(CallRow.id > after, CallRow.id <= up_to, _of_production())
    return await _answers(session, query.order_by(CallRow.id).limit(limit))


async def given_answers(
    session: AsyncSession, after: int, up_to: int, limit: int, tenants: Collection[str] = ()
) -> list[ProductionAnswer]:
    """Answers that users got, of production and of versions of the policy, as `production_answers` pages them."""
    query = _calls(tenants).where(CallRow.id > after, CallRow.id <= up_to)
    return await _answers(session, query.order_by(CallRow.id).limit(limit))


async def answers_before(session: AsyncSession, session_ref: str, pk: int, limit: int) -> list[ProductionAnswer]:
    """The last answers of a session before the call with this row, the newest first.

    Args:
        session_ref: with its tenant.
    """
    query = _calls(()).where(TaskRow.session_id == session_ref, CallRow.id < pk)
    return await _answers(session, query.order_by(CallRow.id.desc()).limit(limit))


async def calls_by_row(session: AsyncSession, pks: Collection[int]) -> dict[int, ProductionAnswer]:
    """Captured answers by their rows."""
    return {found.pk: found for found in await _answers(session, _calls(()).where(CallRow.id.in_(pks)))}


async def judged_answers(
    session: AsyncSession, after: int, limit: int, tenants: Collection[str] = ()
) -> list[ProductionAnswer]:
    """Answers of production that somebody gave feedback on, from behind the one with the row `after`.

    Args:
        tenants: whose; empty for all.
    """
    judged = exists().where(FeedbackTargetRow.call_pk == CallRow.id, has_effect())
    query = _calls(tenants).where(CallRow.id > after, judged, _of_production())
    return await _answers(session, query.order_by(CallRow.id).limit(limit))


async def spans_of_calls(session: AsyncSession, size: int) -> list[tuple[int, int]]:
    """The captured calls in parts: the rows that each begins behind, and ends with. A part has at most `size`."""
    bounds = select(func.min(CallRow.id), func.max(CallRow.id))
    first, last = (await session.execute(bounds)).one()
    if last is None:
        return []
    return [(at, min(at + size, last)) for at in range(first - 1, last, size)]


async def spans_of_groups(session: AsyncSession, size: int) -> list[tuple[str, str]]:
    """The groups in parts of `size`: the names that each begins behind, and ends with."""
    spans: list[tuple[str, str]] = []
    after = ""
    while True:
        names = select(GroupRow.id).where(GroupRow.id > after).order_by(GroupRow.id)
        last = await session.scalar(names.offset(size - 1).limit(1))
        if last is None:
            last = await session.scalar(select(func.max(GroupRow.id)).where(GroupRow.id > after))
        if last is None:
            return spans
        spans.append((after, last))
        after = last


async def groups(
    session: AsyncSession, after: str, up_to: str, limit: int, tenants: Collection[str] = ()
) -> list[GroupOfRuns]:
    """Groups with their scored runs, from behind the one called `after` to the one called `up_to`, by name.

    Args:
        tenants: whose; empty for all.
    """
    query = select(GroupRow.id, GroupRow.kind, GroupRow.call_id, *_TASK).join(TaskRow, TaskRow.id == GroupRow.task_id)
    if tenants:
        query = query.where(TaskRow.tenant.in_(tenants))
    query = query.where(GroupRow.id > after, GroupRow.id <= up_to).order_by(GroupRow.id)
    rows = (await session.execute(query.limit(limit))).all()
    captured = await calls_by_row(session, {row.call_id for row in rows if row.call_id is not None})
    runs = await _runs(session, {row.id: captured.get(row.call_id) for row in rows})
    return [
        GroupOfRuns(row.id, row.kind, _task(row), captured.get(row.call_id), tuple(runs.get(row.id, ())))
        for row in rows
    ]


async def runs_by_row(
    session: AsyncSession, pks: Collection[int], of: Mapping[int, ProductionAnswer]
) -> dict[int, PolicyCall]:
    """Answers of shadow runs by their rows, scored or not.

    Args:
        of: the call that each run repeats.
    """
    rows = (await session.scalars(select(RunRow).where(RunRow.id.in_(pks), RunRow.answer.is_not(None)))).all()
    return {row.id: _shadow(row, of[row.id]) for row in rows if row.request is not None}


_TASK = (TaskRow.id.label("task"), TaskRow.session_id, TaskRow.tenant, TaskRow.labels, TaskRow.meta)


def _task(row: Any) -> OfTask:
    return OfTask(row.task, row.session_id, row.tenant, tuple(row.labels), row.meta)


def _of_production() -> Any:
    return or_(CallRow.variant.is_(None), CallRow.variant == PRODUCTION)


def _calls(tenants: Collection[str]) -> Select[Any]:
    later = aliased(CallRow)
    goes_on = exists().where(later.task_id == CallRow.task_id, later.position > CallRow.position)
    query = select(CallRow, goes_on.label("goes_on"), *_TASK).join(TaskRow, TaskRow.id == CallRow.task_id)
    return query.where(TaskRow.tenant.in_(tenants)) if tenants else query


async def _answers(session: AsyncSession, query: Select[Any]) -> list[ProductionAnswer]:
    rows = (await session.execute(query)).all()
    calls: list[CallRow] = [row.CallRow for row in rows]
    requests = await segments.stored(session, [(call.request, call.segment_id) for call in calls])
    said = await feedback_views.about_calls(session, [call.id for call in calls])
    made = await asyncio.to_thread(lambda: list(map(production_call, calls, requests)))
    return [
        ProductionAnswer(row.CallRow.id, _task(row), call, said.get(row.CallRow.id, ()), not row.goes_on)
        for row, call in zip(rows, made, strict=True)
    ]


async def _runs(session: AsyncSession, of: Mapping[str, ProductionAnswer | None]) -> dict[str, list[ScoredRun]]:
    """The scored runs of groups, by the groups' names."""
    query = select(RunRow).where(RunRow.group_id.in_(of), RunRow.state == RunState.SCORED)
    rows = (await session.scalars(query.order_by(RunRow.group_id, RunRow.run_id))).all()
    said = await feedback_views.about_runs(session, [row.id for row in rows])
    of_agents = await replayed(session, [row.id for row in rows if row.request is None])
    found: dict[str, list[ScoredRun]] = {}
    for row in rows:
        repeated = of[row.group_id]
        calls = await asyncio.to_thread(_of_agent, of_agents.get(row.id, ()))
        if row.request is not None and row.answer is not None and repeated is not None:
            calls = (await asyncio.to_thread(_shadow, row, repeated),)
        if not calls or row.reward is None:
            continue
        found.setdefault(row.group_id, []).append(
            ScoredRun(
                row.id,
                row.run_id,
                calls,
                row.reward,
                row.breakdown or {},
                calls[-1].policy_version,
                row.updated_at,
                said.get(row.id, ()),
            )
        )
    return found


def _shadow(row: RunRow, repeated: ProductionAnswer) -> PolicyCall:
    assert row.request is not None, "a run that was sent"
    return policy_call(row, shadow_requests.completed(unpack(row.request), repeated.call.request))


def _of_agent(made: Sequence[tuple[RunCallRow, StoredRequest]]) -> tuple[PolicyCall, ...]:
    return tuple(policy_call(row, request.read()) for row, request in made)
