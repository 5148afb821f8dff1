"""Production's answers by their msg_id.

A msg_id is random, so in one large index each new one would touch a page of its own, and write it back: with ten
million calls that cost more than all else of storing a call. The index is kept by blocks of calls, in which the newest
ones are together, and a name is looked up block by block, the newest first.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables import CALL_BLOCK, CallRow, call_block

_AT_ONCE = 200
"""Blocks asked for in one statement: three million calls, in which most of what is named is found."""


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call's row, and its task."""

    pk: int
    task_id: str


async def newest_call(session: AsyncSession, msg_id: str) -> NamedCall | None:
    """The newest call that production answered under this id."""
    first, last = select(func.min(CallRow.id)).scalar_subquery(), select(func.max(CallRow.id)).scalar_subquery()
    oldest, newest = (await session.execute(select(first, last))).one()
    if newest is None:
        return None
    blocks = range(newest // CALL_BLOCK, oldest // CALL_BLOCK - 1, -1)
    for at in range(0, len(blocks), _AT_ONCE):
        some = call_block.in_(blocks[at : at + _AT_ONCE])
        query = select(CallRow.id, CallRow.task_id).where(some, CallRow.msg_id == msg_id)
        found = (await session.execute(query.order_by(CallRow.id.desc()).limit(1))).first()
        if found is not None:
            return NamedCall(*found)
    return None
