"""Rows that end the process which takes them up: counted, tried alone, and at last set apart.

`tries` of a row rises before it is taken up, and is 0 again once that came to an end of any kind, or the sidecar ended
in order. So it counts the deaths of the processes that held the row. After one, the row is tried without others that
had such a death, so that the one which causes them is found and those beside it are not taken for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeVar

import structlog
from sqlalchemy import delete, func, literal_column, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import update_rows
from slipstream.store.cipher import Sealed
from slipstream.store.group_ends import end_groups
from slipstream.store.open_tasks import task_goes_on
from slipstream.store.states import RunState, TaskState, move
from slipstream.store.tables.capture import CapturedRow, QuarantinedExchangeRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow

_log = structlog.get_logger(__name__)

MOST_DEATHS = 3
"""Deaths of the process after which a row is set apart. One is an accident; each costs a start of the training side."""

REASON = f"the training side died {MOST_DEATHS} times while it worked on it"


_TRIED = RunRow.tries > literal_column("0")
"""In the words of its index."""


_SENT = (RunState.RUNNING, RunState.OPEN)
"""States of a run on its way: to the Explorer, or to the endpoint that is told of it."""


class Due(NamedTuple):
    """An answered run that is to be scored, with its deaths."""

    pk: int
    tries: int


class Tried(Protocol):
    """A row with the number of deaths that it was part of."""

    @property
    def tries(self) -> int: ...


_T = TypeVar("_T", bound=Tried)


def without_suspects_but_one(rows: Sequence[_T]) -> list[_T]:
    """Return the rows to be taken up at once: one that was part of a death alone, else all."""
    return [row for row in rows if row.tries][:1] or list(rows)


async def pending_suspect(session: AsyncSession, owner: int, now: float) -> dict[int, int]:
    """Return the pending run, with its deaths, that this sidecar may send, or tell an endpoint of, beside those without
    any; it has one at a time on its way."""
    query = select(RunRow.id, RunRow.tries, RunRow.state, RunRow.owner, RunRow.due_at).where(_TRIED)
    rows = (await session.execute(query.where(RunRow.state.in_((RunState.PENDING, *_SENT))))).all()
    if any(row.owner == owner and row.tries > 1 for row in rows if row.state != RunState.PENDING):
        return {}
    waiting = [row for row in rows if row.state == RunState.PENDING and row.due_at <= now]
    first = sorted(waiting, key=lambda row: (row.due_at, row.id))[:1]
    return {row.id: row.tries for row in first}


async def due_answers(session: AsyncSession, owner: int, limit: int, now: float) -> list[Due]:
    """Return the answered runs of a sidecar that are to be scored at once, the longest due first. Those of a task that
    goes on wait until it is complete, or idle for `capture.task_idle`."""
    query = select(RunRow.id, RunRow.tries).join(GroupRow, GroupRow.id == RunRow.group_id).where(~task_goes_on())
    query = query.where(RunRow.state == RunState.ANSWERED, RunRow.due_at <= now, RunRow.owner == owner)
    rows = await session.execute(query.order_by(RunRow.due_at, RunRow.id).limit(limit))
    return without_suspects_but_one([Due(*row) for row in rows])


async def begin_scoring(session: AsyncSession, due: Sequence[Due]) -> None:
    """These runs are scored from here on."""
    await update_rows(session, RunRow, ("tries",), [(run.tries + 1, run.pk) for run in due])


async def set_apart(session: AsyncSession, dead: Collection[int], now: float) -> None:
    """Set apart what these sidecars, which are gone, held when they died for the third time.

    Args:
        dead: the ids of the sidecars.
    """
    for before in (*_SENT, RunState.ANSWERED):
        query = select(RunRow.id, RunRow.group_id).where(_TRIED, RunRow.state == before, RunRow.tries >= MOST_DEATHS)
        query = query.where(~RunRow.called) if before == RunState.OPEN else query  # one with a call has failed
        found = (await session.execute(query.where(RunRow.owner.in_(dead)))).all()
        apart = move(before, RunState.QUARANTINED)
        rows = [(apart, None, REASON, now, pk) for pk, _ in found]
        await update_rows(session, RunRow, ("state", "owner", "reason", "updated_at"), rows)
        await end_groups(session, {group for _, group in found}, now)
        for pk, group in found:
            _log.error("quarantined", kind="run", id=pk, group_id=group, reason=REASON)
    held = select(TaskRow.id).where(TaskRow.decided.is_(False), TaskRow.state == TaskState.COMPLETE)
    tasks = await session.scalars(held.where(TaskRow.tries >= MOST_DEATHS, TaskRow.owner.in_(dead)))
    apart_task = move(TaskState.COMPLETE, TaskState.QUARANTINED)
    task_ids = list(tasks)
    await update_rows(session, TaskRow, ("state", "owner"), [(apart_task, None, task_id) for task_id in task_ids])
    for task_id in task_ids:
        _log.error("quarantined", kind="task", id=task_id, reason=REASON)


async def quarantine_exchange(session: AsyncSession, packed: bytes, now: float) -> None:
    """Set one exchange apart, packed as in `captured`."""
    session.add(QuarantinedExchangeRow(packed=packed, reason=REASON, created_at=now))
    _log.error("quarantined", kind="exchange", reason=REASON)


async def exchanges_named(
    session: AsyncSession, wanted: Callable[[bytes], bool], *, until: float = math.inf
) -> list[int]:
    """The ids of the exchanges that are set apart and wanted, by how they are packed. Few are set apart.

    Args:
        until: Unix seconds; what was set apart later is left out.
    """
    found = []
    named = select(QuarantinedExchangeRow.id).where(QuarantinedExchangeRow.created_at <= until)
    for pk in (await session.scalars(named)).all():
        try:
            packed = await session.scalar(select(QuarantinedExchangeRow.packed).where(QuarantinedExchangeRow.id == pk))
        except Sealed as error:  # one that was changed, which must not keep the others
            _log.error("quarantined_exchange_unreadable", id=pk, reason=str(error))
            continue
        if packed is not None and wanted(packed):
            found.append(pk)
    return found


async def delete_exchanges(session: AsyncSession, wanted: Callable[[bytes], bool], *, until: float = math.inf) -> int:
    """Delete these exchanges; returns how many there were."""
    return await delete_by_id(session, *await exchanges_named(session, wanted, until=until))


async def delete_by_id(session: AsyncSession, *pks: int) -> int:
    """Delete exchanges that are set apart, unread; returns how many there were."""
    gone = delete(QuarantinedExchangeRow).where(QuarantinedExchangeRow.id.in_(pks))
    done = await session.execute(gone.execution_options(synchronize_session=False))
    return int(done.rowcount)  # type: ignore[attr-defined]


async def forgive(session: AsyncSession, owner: int) -> None:
    """Note that none of the rows that this sidecar holds ended it."""
    quick = {"synchronize_session": False}
    undecided = TaskRow.state == TaskState.COMPLETE, TaskRow.decided.is_(False)  # as its index has them
    for table, held in (
        (CapturedRow, (CapturedRow.owner == owner,)),
        (TaskRow, (*undecided, TaskRow.owner == owner)),
        (RunRow, (_TRIED, RunRow.state.in_((*_SENT, RunState.ANSWERED)), RunRow.owner == owner)),
    ):
        await session.execute(update(table).where(*held).values(tries=0).execution_options(**quick))


async def forgive_runs(session: AsyncSession, pks: Collection[int]) -> None:
    """Work on these runs came to an end, whichever."""
    await update_rows(session, RunRow, ("tries",), [(0, pk) for pk in pks])


async def forgive_tasks(session: AsyncSession, task_ids: Collection[str]) -> None:
    """Work on these tasks came to an end, whichever."""
    await update_rows(session, TaskRow, ("tries",), [(0, task_id) for task_id in task_ids])


async def count(session: AsyncSession, tenant: str | None = None) -> dict[str, int]:
    """The number of rows that are set apart, by kind.

    Args:
        tenant: whose; None for all. Exchanges, of which nothing is read, are counted for None alone.
    """
    runs = select(func.count()).select_from(RunRow).where(RunRow.state == RunState.QUARANTINED)
    tasks = select(func.count()).where(TaskRow.state == TaskState.QUARANTINED, TaskRow.decided.is_(False))
    found = {"exchange": select(func.count()).select_from(QuarantinedExchangeRow), "task": tasks, "run": runs}
    if tenant is not None:
        runs = runs.join(GroupRow, GroupRow.id == RunRow.group_id).join(TaskRow, TaskRow.id == GroupRow.task_id)
        found = {"task": tasks.where(TaskRow.tenant == tenant), "run": runs.where(TaskRow.tenant == tenant)}
    return {kind: await session.scalar(query) or 0 for kind, query in found.items()}


async def delete_older(session: AsyncSession, before: float, limit: int) -> int:
    """Delete exchanges that were set apart before this time; returns how many. Tasks and runs go with their tasks."""
    old = select(QuarantinedExchangeRow.id).where(QuarantinedExchangeRow.created_at < before).limit(limit)
    return await delete_by_id(session, *(await session.scalars(old)).all())
