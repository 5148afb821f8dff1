"""Agent replays that an endpoint is asked for: planned, told, and told again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import quarantine, segments
from slipstream.store.bulk import update_rows
from slipstream.store.replays import KIND, open_runs
from slipstream.store.segments import StoredRequest
from slipstream.store.states import RunState, move
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow


@dataclass(frozen=True, slots=True)
class ClaimedReplay:
    """A run that an endpoint is to be told of, and what it is told: the first request of the task, and what is known
    of it."""

    pk: int
    owner: int
    group_id: str
    run_id: int
    attempts: int
    task_id: str
    labels: Sequence[str]
    metadata: Mapping[str, Any]
    request: StoredRequest


async def plan(session: AsyncSession, task_ids: Sequence[str], repeat_time: int, now: float) -> None:
    """Plan a group for each task: `repeat_time` runs of its agent."""
    for task_id in task_ids:
        await open_runs(session, task_id, repeat_time, now, state=RunState.PENDING, by_client=False, due_at=now)


async def plan_again(session: AsyncSession, group: GroupRow, now: float) -> None:
    """Plan the next generation of a group, with as many runs."""
    count = await session.scalar(select(func.count()).where(RunRow.group_id == group.id)) or 0
    await open_runs(
        session, group.task_id, count, now, state=RunState.PENDING, by_client=False, due_at=now,
        generation=group.generation + 1,
    )  # fmt: skip


async def unplanned(session: AsyncSession, task_ids: Sequence[str]) -> list[str]:
    """Those of these tasks for which nothing is planned yet, in their order."""
    planned = set(await session.scalars(select(GroupRow.task_id).where(GroupRow.task_id.in_(task_ids))))
    return [task_id for task_id in task_ids if task_id not in planned]


async def begun(session: AsyncSession) -> int:
    """Open runs that the sidecar has asked an endpoint for."""
    query = select(func.count()).select_from(RunRow).join(GroupRow, GroupRow.id == RunRow.group_id)
    return await session.scalar(query.where(RunRow.state == RunState.OPEN, GroupRow.by_client.is_(False))) or 0


async def waiting(session: AsyncSession, now: float) -> bool:
    """Return whether an endpoint has to be told of a run."""
    query = select(RunRow.id).join(GroupRow, GroupRow.id == RunRow.group_id)
    query = query.where(RunRow.state == RunState.PENDING, RunRow.due_at <= now, GroupRow.kind == KIND)
    return await session.scalar(query.limit(1)) is not None


async def claim(session: AsyncSession, limit: int, now: float, expires_at: float, sidecar: int) -> list[ClaimedReplay]:
    """Open pending runs, the longest due first, until this time, for this sidecar to tell of. Of those that were being
    told of when a process died, one at a time is."""
    deaths = await quarantine.pending_suspect(session, sidecar, now)
    query = (
        select(
            RunRow.id, literal(sidecar), RunRow.group_id, RunRow.run_id, RunRow.attempts, TaskRow.id, TaskRow.labels,
            TaskRow.meta, CallRow.request, CallRow.segment_id,
        )
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .join(TaskRow, TaskRow.id == GroupRow.task_id)
        .join(CallRow, (CallRow.task_id == TaskRow.id) & (CallRow.position == 0))
        .where(RunRow.state == RunState.PENDING, RunRow.due_at <= now, GroupRow.kind == KIND)
        .where((RunRow.tries == 0) | RunRow.id.in_(deaths))
        .order_by(RunRow.due_at, RunRow.id)
        .limit(limit)
    )  # fmt: skip
    rows: list[Any] = list(await session.execute(query))
    requests = await segments.stored(session, [row[-2:] for row in rows])
    claimed = [ClaimedReplay(*(*row[:-2], request)) for row, request in zip(rows, requests, strict=True)]
    open_ = move(RunState.PENDING, RunState.OPEN)
    opened = [(open_, sidecar, 1 + deaths.get(run.pk, 0), expires_at, now, run.pk) for run in claimed]
    await update_rows(session, RunRow, ("state", "owner", "tries", "due_at", "updated_at"), opened)
    return claimed


async def accepted(session: AsyncSession, run: ClaimedReplay) -> None:
    """The endpoint runs it on its own: nothing more comes to the sidecar that told it."""
    told = update(RunRow).where(RunRow.id == run.pk, RunRow.state == RunState.OPEN, RunRow.owner == run.owner)
    await session.execute(told.values(owner=None, tries=0).execution_options(synchronize_session=False))


async def tell_again(
    session: AsyncSession, sidecars: Collection[int], now: float, but: Collection[int] | None = None
) -> None:
    """Whoever took these runs may not have come to telling of them: those without a call are told of again.

    Args:
        sidecars: that are gone; or the one that asks, which knows `but` these, and did not die of the others.
    """
    left = update(RunRow).where(RunRow.state == RunState.OPEN, RunRow.owner.in_(sidecars), ~RunRow.called)
    alive: dict[str, int] = {}
    if but is not None:
        left, alive = left.where(RunRow.id.not_in(but)), {"tries": 0}
    again = move(RunState.OPEN, RunState.PENDING)
    left = left.values(state=again, owner=None, attempts=RunRow.attempts + 1, due_at=now, updated_at=now, **alive)
    await session.execute(left.execution_options(synchronize_session=False))


async def postpone(session: AsyncSession, run: ClaimedReplay, attempts: int, after: float, now: float) -> bool:
    """Tell the endpoint of a run again, so many seconds later. Returns False where it has begun a call, has ended, or
    was told of by another sidecar since."""
    again = update(RunRow).where(
        RunRow.id == run.pk, RunRow.state == RunState.OPEN, ~RunRow.called, RunRow.owner == run.owner
    )
    pending = move(RunState.OPEN, RunState.PENDING)
    again = again.values(state=pending, owner=None, attempts=attempts, tries=0, due_at=now + after, updated_at=now)
    done = await session.execute(again.execution_options(synchronize_session=False))
    return bool(done.rowcount)  # type: ignore[attr-defined]
