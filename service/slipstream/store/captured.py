"""Captured exchanges that wait to be read: rows that live for a moment, written and taken in their order.

Each sidecar numbers its own, so that they can be written beside others and change hands as they are; it reads those
that it owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import insert_rows, update_rows
from slipstream.store.sidecars import LeaseLost
from slipstream.store.tables.capture import CapturedRow

NUMBERS = 2**32
"""Range of batch numbers of one sidecar. At a hundred a second it lasts for a year, and there can be half as many
sidecars."""


class CaptureBatch(NamedTuple):
    """One row: some exchanges that were captured one after the other.

    Attributes:
        id: grows with each row of a sidecar.
        exchanges: how many.
        packed: the exchanges themselves.
        tries: deaths of the processes that read it, see `quarantine`.
    """

    id: int
    exchanges: int
    packed: bytes
    tries: int = 0


class Waiting(NamedTuple):
    """Exchanges of one sidecar in the table.

    Attributes:
        last_id: of the newest row that it wrote, or what is before its first.
        size: bytes.
    """

    last_id: int
    exchanges: int
    size: int


_size = func.length(CapturedRow.packed)


def before_first(sidecar: int) -> int:
    """The number before those of a sidecar."""
    return sidecar * NUMBERS


async def waiting(session: AsyncSession, sidecar: int, *, up_to: int | None = None) -> Waiting:
    """Return what a sidecar has to read; looks at every row of it.

    Args:
        up_to: the newest of its own that it knows to be written; None takes what is there.
    """
    before = before_first(sidecar)
    own = CapturedRow.id > before, CapturedRow.id < before_first(sidecar + 1)
    last_id = await session.scalar(select(func.max(CapturedRow.id)).where(*own))
    up_to = last_id or before if up_to is None else up_to
    query = select(func.sum(CapturedRow.exchanges), func.sum(_size)).where(*_readable(sidecar, up_to))
    exchanges, size = (await session.execute(query)).one()
    return Waiting(up_to, int(exchanges or 0), int(size or 0))


async def add(session: AsyncSession, sidecar: int, batches: Sequence[CaptureBatch], *, again: bool) -> None:
    """Write batches, whose ids are beyond all others of this sidecar.

    Args:
        again: they may be there already, because it is not known how an earlier try ended.
    """
    if again:
        there = CapturedRow.id.between(batches[0].id, batches[-1].id)
        await session.execute(delete(CapturedRow).where(there))
    rows = [(batch.id, sidecar, batch.exchanges, batch.packed) for batch in batches]
    await insert_rows(session, CapturedRow, ("id", "owner", "exchanges", "packed"), rows)


async def begin(session: AsyncSession, sidecar: int, exchanges: int, size: int, *, up_to: int) -> list[CaptureBatch]:
    """Begin to read the oldest batches of a sidecar: the first, and those after it with which it stays within so many
    exchanges and bytes. One that was being read when a process died is read alone.

    Args:
        up_to: the newest of its own that it knows to be written. One beyond it may be written again.
    """
    query = select(CapturedRow.id, CapturedRow.exchanges, CapturedRow.tries, _size).where(*_readable(sidecar, up_to))
    ids: list[int] = []
    for number, more, tries, longer in await session.execute(query.order_by(CapturedRow.id).limit(exchanges)):
        exchanges -= more
        size -= longer
        if ids and (exchanges < 0 or size < 0 or tries):
            break
        ids.append(number)
        if tries:
            break
    if not ids:
        return []
    taken = select(CapturedRow.id, CapturedRow.exchanges, CapturedRow.packed, CapturedRow.tries)
    taken = taken.where(CapturedRow.id.in_(ids))
    batches = [CaptureBatch(*row) for row in await session.execute(taken.order_by(CapturedRow.id))]
    await update_rows(session, CapturedRow, ("tries",), [(batch.tries + 1, batch.id) for batch in batches])
    return batches


async def keep_rest(session: AsyncSession, sidecar: int, batch: CaptureBatch) -> bool:
    """Leave this of a batch, whose first exchanges were read; returns whether it was there."""
    rest = update(CapturedRow).where(CapturedRow.owner == sidecar, CapturedRow.id == batch.id)
    rest = rest.values(exchanges=batch.exchanges, packed=batch.packed, tries=batch.tries)
    found = await session.execute(rest.returning(CapturedRow.id).execution_options(synchronize_session=False))
    return found.scalar() is not None


async def drop(session: AsyncSession, sidecar: int, batches: Sequence[CaptureBatch]) -> bool:
    """Delete the oldest batches of a sidecar; returns whether they were there.

    Raises:
        LeaseLost: some of them were: others are another's by now.
    """
    # by name: between those of its own and those that it took over, others are written meanwhile
    theirs = CapturedRow.owner == sidecar, CapturedRow.id.in_([batch.id for batch in batches])
    gone = (await session.scalars(delete(CapturedRow).where(*theirs).returning(CapturedRow.id))).all()
    if gone and len(gone) != len(batches):
        raise LeaseLost
    return bool(gone)


def _readable(sidecar: int, up_to: int) -> tuple[ColumnElement[bool], ...]:
    return CapturedRow.owner == sidecar, ~CapturedRow.id.between(up_to + 1, before_first(sidecar + 1))
