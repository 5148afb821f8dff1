"""Rows that are set apart, for people: listed, tried again, or dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, String, cast, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import quarantine
from slipstream.store.bulk import insert_rows
from slipstream.store.scoring_again import rewards_may_change
from slipstream.store.states import GroupState, RunState, TaskState, move
from slipstream.store.tables.capture import CapturedRow, QuarantinedExchangeRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow

Kind = Literal["exchange", "task", "run"]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Something that is set apart.

    Attributes:
        id: of the exchange, the task or the run, as `retry` and `drop` take it.
        task_id: of a task and a run, as in the store.
        since: Unix seconds.
    """

    kind: Kind
    id: str
    task_id: str | None
    reason: str
    since: float


async def listed(
    session: AsyncSession, tenant: str | None, limit: int, kind: Kind | None = None, name: str | None = None
) -> list[Quarantined]:
    """Return what is set apart, at most so much of each kind, the oldest first.

    Args:
        tenant: whose; None for all. Exchanges, of which nothing is read, are listed for None alone.
        kind: of which alone; None for each.
        name: the `id` of which alone; None for all.
    """
    found: list[Quarantined] = []
    if tenant is None and kind in (None, "exchange"):
        row = QuarantinedExchangeRow
        exchanges = select(row.id, row.reason, row.created_at).where(*_is(row.id, name))
        for pk, reason, since in await session.execute(exchanges.order_by(row.id).limit(limit)):
            found.append(Quarantined("exchange", str(pk), None, reason, since))
    whose = () if tenant is None else (TaskRow.tenant == tenant,)
    if kind in (None, "task"):
        tasks = select(TaskRow.id, TaskRow.updated_at).where(*whose, *_is(TaskRow.id, name))
        tasks = tasks.where(TaskRow.state == TaskState.QUARANTINED, TaskRow.decided.is_(False))
        for task_id, since in await session.execute(tasks.order_by(TaskRow.updated_at).limit(limit)):
            found.append(Quarantined("task", task_id, task_id, quarantine.REASON, since))
    if kind in (None, "run"):
        runs = select(RunRow.id, GroupRow.task_id, RunRow.reason, RunRow.updated_at).where(
            *whose, *_is(RunRow.id, name)
        )
        runs = runs.join(GroupRow, GroupRow.id == RunRow.group_id).join(TaskRow, TaskRow.id == GroupRow.task_id)
        runs = runs.where(RunRow.state == RunState.QUARANTINED).order_by(RunRow.updated_at)
        for pk, of_task, why, since in await session.execute(runs.limit(limit)):
            found.append(Quarantined("run", str(pk), of_task, why or quarantine.REASON, since))
    return found


def _is(column: Any, name: str | None) -> tuple[ColumnElement[bool], ...]:
    """Return the condition that an id is this, as text: what is asked for need not be a number."""
    return () if name is None else (cast(column, String) == name,)


async def retry(session: AsyncSession, some: Sequence[Quarantined], owner: int, now: float) -> int:
    """Have these taken up again, with no deaths; returns how many were. A run whose group has been delivered stays.

    Args:
        owner: the sidecar that is to read the exchanges.
    """
    changed = 0
    for one in some:
        if one.kind == "exchange":
            row = await session.get(QuarantinedExchangeRow, int(one.id))
            if row is not None:
                # sidecars number their batches from 0 up, so that none has this number
                values = (-row.id, owner, 1, row.packed)
                await insert_rows(session, CapturedRow, ("id", "owner", "exchanges", "packed"), [values])
                await session.delete(row)
                changed += 1
        elif one.kind == "task":
            changed += await _end_of_task(session, one.id, decided=False)
        else:
            changed += await _retry_run(session, int(one.id), now)
    return changed


async def drop(session: AsyncSession, some: Sequence[Quarantined], now: float) -> int:
    """Give these up; returns how many were. An exchange is deleted, a task is not selected, a run has failed."""
    changed = 0
    for one in some:
        if one.kind == "exchange":
            changed += await quarantine.delete_by_id(session, int(one.id))
        elif one.kind == "task":
            changed += await _end_of_task(session, one.id, decided=True)
        else:
            run = await session.get(RunRow, int(one.id))
            if run is not None and run.state == RunState.QUARANTINED:
                run.state, run.updated_at = move(run.state, RunState.FAILED), now
                changed += 1
    return changed


async def _end_of_task(session: AsyncSession, task_id: str, *, decided: bool) -> int:
    apart = update(TaskRow).where(TaskRow.id == task_id, TaskRow.state == TaskState.QUARANTINED)
    complete = move(TaskState.QUARANTINED, TaskState.COMPLETE)
    reason = "quarantined" if decided else None
    apart = apart.values(state=complete, decided=decided, reason=reason, tries=0)
    done = await session.execute(apart.execution_options(synchronize_session=False))
    return int(done.rowcount)  # type: ignore[attr-defined]


async def _retry_run(session: AsyncSession, pk: int, now: float) -> int:
    run = await session.get(RunRow, pk)
    group = None if run is None else await session.get(GroupRow, run.group_id)
    if run is None or group is None or run.state != RunState.QUARANTINED or not rewards_may_change(group):
        return 0
    group.state = move(group.state, GroupState.RUNNING)
    answered = run.msg_id is not None
    run.state = move(run.state, RunState.ANSWERED if answered else RunState.PENDING)
    run.tries, run.owner, run.reason, run.due_at, run.updated_at = 0, None, None, now, now
    return 1
