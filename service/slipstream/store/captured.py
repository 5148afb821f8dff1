"""What is captured waits here until it is read: rows that live for a moment, written and taken in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import insert_rows
from slipstream.store.tables import CapturedRow


class Parcel(NamedTuple):
    """One row: some exchanges that were captured one after the other.

    Attributes:
        id: grows with each row.
        exchanges: how many.
        packed: the exchanges themselves.
    """

    id: int
    exchanges: int
    packed: bytes


class Waiting(NamedTuple):
    """What is in the table.

    Attributes:
        last_id: of the newest row, 0 where there is none.
        size: bytes.
    """

    last_id: int
    exchanges: int
    size: int


_size = func.length(CapturedRow.packed)


async def waiting(session: AsyncSession) -> Waiting:
    """What is there; looks at every row."""
    query = select(func.max(CapturedRow.id), func.sum(CapturedRow.exchanges), func.sum(_size))
    last_id, exchanges, size = (await session.execute(query.where(CapturedRow.id > 0))).one()
    return Waiting(last_id or 0, int(exchanges or 0), int(size or 0))


async def add(session: AsyncSession, parcels: Sequence[Parcel], *, again: bool) -> None:
    """Write parcels, whose ids are beyond all others.

    Args:
        again: they may be there already, because it is not known how an earlier try ended.
    """
    if again:
        await session.execute(delete(CapturedRow).where(CapturedRow.id >= parcels[0].id))
    await insert_rows(session, CapturedRow, ("id", "exchanges", "packed"), list(parcels))


async def oldest(session: AsyncSession, exchanges: int, size: int) -> list[Parcel]:
    """The oldest parcels: the first, and those after it with which it stays within so many exchanges and bytes."""
    query = select(CapturedRow.id, CapturedRow.exchanges, _size).where(CapturedRow.id > 0)
    last_id = 0
    for number, more, longer in await session.execute(query.order_by(CapturedRow.id).limit(exchanges)):
        exchanges -= more
        size -= longer
        if last_id and (exchanges < 0 or size < 0):
            break
        last_id = number
    taken = select(CapturedRow.id, CapturedRow.exchanges, CapturedRow.packed)
    found = await session.execute(taken.where(CapturedRow.id.between(1, last_id)).order_by(CapturedRow.id))
    return [Parcel(*row) for row in found]


async def drop(session: AsyncSession, parcels: Sequence[Parcel]) -> bool:
    """Delete the oldest parcels; returns whether they were there."""
    gone = delete(CapturedRow).where(CapturedRow.id.between(1, parcels[-1].id)).returning(CapturedRow.id)
    return bool((await session.scalars(gone)).all())
