"""The sidecars that share the store: each start is a row, alive while its lease runs, and what it holds carries its id.

One whose lease has run out is taken over by any other: what it held is free, or the other's. The row is gone then, so
that one which was only stopped finds, wherever it would write beside others, that it holds nothing any more (`hold`).

Leases are told by the database's clock, which all sidecars share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement
from sqlalchemy.types import Double

from slipstream.store import commits, quarantine, replays, webhook
from slipstream.store.states import RunState, move
from slipstream.store.tables.capture import CapturedRow, TaskRow
from slipstream.store.tables.runs import RunRow
from slipstream.store.tables.sidecars import SidecarRow


class _now(FunctionElement[float]):
    """Unix seconds by the database's clock, at this moment and not at the transaction's begin."""

    type = Double()
    inherit_cache = True


@compiles(_now, "postgresql")
def _now_of_postgresql(*_: Any, **__: Any) -> str:
    return "extract(epoch from clock_timestamp())"


@compiles(_now, "sqlite")
def _now_of_sqlite(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


class LeaseLost(OperationalError):
    """This sidecar's lease ran out and another took over what it held: it registers anew, and begins with nothing."""

    def __init__(self) -> None:
        super().__init__(None, None, Exception("the lease of this sidecar ran out"))


class TakenOver(NamedTuple):
    """Work of the sidecars whose leases had run out.

    Attributes:
        sidecars: their ids.
        exchanges: that they had captured and not read, now the other's.
        size: their bytes.
        runs: that were on their way, and are pending again.
        replays: agents' runs that have failed, as one of their calls was cut.
        deliveries: that were begun, and are to be ended.
    """

    sidecars: Sequence[int]
    exchanges: int = 0
    size: int = 0
    runs: int = 0
    replays: int = 0
    deliveries: int = 0


async def register(session: AsyncSession, name: str, lease: float, *, now: float, alone: bool) -> int:
    """Begin a lease of so many seconds; returns its id, which no other start ever had.

    Args:
        now: Unix seconds, of when it started.
        alone: there can be no other sidecar: an earlier one's place is taken, with what is not read yet.
    """
    if alone and (earlier := await session.scalar(select(SidecarRow.id))) is not None:
        await _free(session, [earlier], now)
        await session.execute(update(SidecarRow).values(name=name, started_at=now))
        return int(earlier)
    row = SidecarRow(name=name, started_at=now, lease_until=_now() + lease)
    session.add(row)
    await session.flush()
    registered: int = row.id
    return registered


async def renew(session: AsyncSession, sidecar: int, lease: float) -> bool:
    """Have a lease run so many seconds from now; False where another has taken over."""
    renewed = update(SidecarRow).where(SidecarRow.id == sidecar).values(lease_until=_now() + lease)
    found = await session.execute(renewed.returning(SidecarRow.id).execution_options(synchronize_session=False))
    return found.scalar() is not None


async def hold(session: AsyncSession, sidecar: int, *, others_ended: bool = False) -> None:
    """Make sure, up to the end of this transaction, that nobody takes over from this sidecar: for what it writes beside
    others. On SQLite there are none.

    Args:
        others_ended: first wait for whatever else is written beside others in its name, the end of which it may not
            have heard of.

    Raises:
        LeaseLost: another has.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    query = select(SidecarRow.id).where(SidecarRow.id == sidecar)
    query = query.with_for_update(read=not others_ended, key_share=not others_ended)
    if await session.scalar(query) is None:
        raise LeaseLost


async def resign(session: AsyncSession, sidecar: int) -> None:
    """End a lease: whatever is left of it may be taken over at once."""
    await session.execute(update(SidecarRow).where(SidecarRow.id == sidecar).values(lease_until=0.0))


async def expired(session: AsyncSession, *, resigned: bool) -> Sequence[int]:
    """The sidecars whose leases have run out.

    Args:
        resigned: only those that ended them.
    """
    over = SidecarRow.lease_until == 0 if resigned else SidecarRow.lease_until < _now()
    return (await session.scalars(select(SidecarRow.id).where(over))).all()


async def alive(session: AsyncSession) -> Sequence[str]:
    """The names of the sidecars whose leases run."""
    return (await session.scalars(select(SidecarRow.name).where(SidecarRow.lease_until > _now()))).all()


async def end_all(session: AsyncSession, now: float) -> None:
    """End every lease of a store that was restored: no sidecar of then runs on it. What they held is free, and the
    first has all exchanges that are not read, for whichever starts next.

    Args:
        now: Unix seconds.
    """
    found = (await session.scalars(select(SidecarRow.id).order_by(SidecarRow.id))).all()
    if not found:
        return
    quick = {"synchronize_session": False}
    adopted = update(CapturedRow).where(CapturedRow.owner.in_(found)).values(owner=found[0])
    await session.execute(adopted.execution_options(**quick))
    await _free(session, found, now)
    await session.execute(delete(SidecarRow).where(SidecarRow.id.in_(found[1:])).execution_options(**quick))
    await session.execute(update(SidecarRow).values(lease_until=0.0).execution_options(**quick))


async def take_over(session: AsyncSession, sidecar: int, others: Sequence[int], now: float) -> TakenOver:
    """Take over from these sidecars where their leases have still run out, in a transaction that is alone.

    One that is writing something at this moment, beside others, is left for the next time.

    Args:
        now: Unix seconds.
    """
    over = select(SidecarRow.id).where(SidecarRow.id.in_(others), SidecarRow.id != sidecar)
    over = over.where(SidecarRow.lease_until < _now()).with_for_update(skip_locked=True)
    found = (await session.scalars(over)).all()
    if not found:
        return TakenOver(())
    size = func.sum(func.length(CapturedRow.packed))
    theirs = select(func.sum(CapturedRow.exchanges), size).where(CapturedRow.owner.in_(found))
    exchanges, size_ = (await session.execute(theirs)).one()
    adopted = update(CapturedRow).where(CapturedRow.owner.in_(found)).values(owner=sidecar)
    await session.execute(adopted.execution_options(synchronize_session=False))
    freed = await _free(session, found, now)
    await session.execute(delete(SidecarRow).where(SidecarRow.id.in_(found)))
    return TakenOver(found, int(exchanges or 0), int(size_ or 0), *freed)


async def _free(session: AsyncSession, found: Sequence[int], now: float) -> tuple[int, int, int]:
    """Whatever these sidecars were doing is to be done by any other. Returns how many runs were on their way, how many
    replays have failed by it, and how many deliveries are left."""
    await quarantine.set_apart(session, found, now)
    quick = {"synchronize_session": False}
    sent = update(RunRow).where(RunRow.state == RunState.RUNNING, RunRow.owner.in_(found))
    sent = sent.values(state=move(RunState.RUNNING, RunState.PENDING), owner=None)
    runs: int = (await session.execute(sent.execution_options(**quick))).rowcount  # type: ignore[attr-defined]
    answered = update(RunRow).where(RunRow.state == RunState.ANSWERED, RunRow.owner.in_(found)).values(owner=None)
    await session.execute(answered.execution_options(**quick))
    undecided = update(TaskRow).where(TaskRow.decided.is_(False), TaskRow.owner.in_(found)).values(owner=None)
    await session.execute(undecided.execution_options(**quick))
    await webhook.tell_again(session, found, now)
    return runs, await replays.interrupt(session, found, now), await commits.let_go(session, *found)
