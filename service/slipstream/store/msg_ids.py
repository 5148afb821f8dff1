"""Production's answers by their msg_id.

A msg_id is random, so in one large index each new one would touch a page of its own, and write it back: with ten
million calls that cost more than all else of storing a call. The index is kept by blocks of calls, in which the newest
ones are together, and a name is looked up block by block, the newest first.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.capture import CALL_BLOCK, ReplacedAnswerRow

_NEWEST = text(f"""
    WITH RECURSIVE blocks (number) AS (
        SELECT max(id) / {CALL_BLOCK} FROM calls
        UNION ALL
        SELECT (SELECT max(id) / {CALL_BLOCK} FROM calls WHERE id < blocks.number * {CALL_BLOCK}) FROM blocks
        WHERE blocks.number IS NOT NULL
    ), named (id) AS (
        SELECT (SELECT max(id) FROM calls WHERE id / {CALL_BLOCK} = blocks.number AND msg_id = :msg_id) FROM blocks
    )
    SELECT id FROM named WHERE id IS NOT NULL LIMIT 1
""")  # noqa: S608 - a constant of ours
"""Blocks that retention has emptied are passed over. With the limit the database goes no further than it must."""


async def newest_call(session: AsyncSession, msg_id: str) -> int | None:
    """The row of the newest call that production answered under this id."""
    found: int | None = await session.scalar(_NEWEST, {"msg_id": msg_id})
    return found


class NamedCall(NamedTuple):
    """The row of a call by the id of an answer. `same`: the answer that it has says what the named one said."""

    pk: int
    same: bool = True


async def named_call(session: AsyncSession, msg_id: str) -> NamedCall | None:
    """The newest call that production answered under this id, or else one in which a retry replaced that answer."""
    if (pk := await newest_call(session, msg_id)) is not None:
        return NamedCall(pk)
    query = select(ReplacedAnswerRow.call_id, ReplacedAnswerRow.same).where(ReplacedAnswerRow.msg_id == msg_id)
    row = (await session.execute(query.order_by(ReplacedAnswerRow.call_id.desc()).limit(1))).first()
    return None if row is None else NamedCall(*row)
