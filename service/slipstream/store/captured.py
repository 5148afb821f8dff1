"""What is captured waits here until it is read: rows that live for a moment, written and taken in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import insert_rows
from slipstream.store.tables import CapturedRow

Row = tuple[int, bytes, bytes, bytes]
"""Id, head, request and answer, as in the table."""


class Waiting(NamedTuple):
    """What is in the table.

    Attributes:
        last_id: of the newest row, 0 where there is none.
        size: bytes of the bodies.
    """

    last_id: int
    rows: int
    size: int


async def waiting(session: AsyncSession) -> Waiting:
    """What is there; looks at every row."""
    size = func.length(CapturedRow.request) + func.length(CapturedRow.answer)
    query = select(func.max(CapturedRow.id), func.count(), func.sum(size)).where(CapturedRow.id > 0)
    last_id, rows, total = (await session.execute(query)).one()
    return Waiting(last_id or 0, rows, int(total or 0))


async def add(session: AsyncSession, rows: Sequence[Row], *, again: bool) -> None:
    """Write rows, whose ids are beyond all others.

    Args:
        again: they may be there already, because it is not known how an earlier try ended.
    """
    if again:
        await session.execute(delete(CapturedRow).where(CapturedRow.id >= rows[0][0]))
    await insert_rows(session, CapturedRow, ("id", "head", "request", "answer"), list(rows))


async def oldest(session: AsyncSession, rows: int, size: int) -> list[Row]:
    """The oldest rows, at most so many, and with at most so many bytes of bodies where the first alone has no more."""
    columns = (CapturedRow.id, func.length(CapturedRow.request) + func.length(CapturedRow.answer))
    query = select(*columns).where(CapturedRow.id > 0).order_by(CapturedRow.id).limit(rows)
    last_id, total = 0, 0
    for number, bytes_of in await session.execute(query):
        total += bytes_of
        if last_id and total > size:
            break
        last_id = number
    taken = select(CapturedRow.id, CapturedRow.head, CapturedRow.request, CapturedRow.answer)
    found = await session.execute(taken.where(CapturedRow.id.between(1, last_id)).order_by(CapturedRow.id))
    return [(number, head, request, answer) for number, head, request, answer in found]


async def drop(session: AsyncSession, rows: Sequence[Row]) -> bool:
    """Delete the oldest rows; returns whether they were there."""
    result = await session.execute(delete(CapturedRow).where(CapturedRow.id.between(1, rows[-1][0])))
    return bool(result.rowcount)  # type: ignore[attr-defined]
