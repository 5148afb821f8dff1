"""The versions that the newest answers were asked of, and what is wrong where others gave them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.runs import RunRow

_LOOKED_AT = 1000
"""Newest runs among which answers are looked for."""

_ENOUGH = 20
"""Answers from which on it is no accident."""


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """Answers of another version than the one that the Explorer said.

    Attributes:
        answers: of `compared` answers; `said` and `recorded`: the versions of most of them.
    """

    answers: int
    compared: int
    said: int
    recorded: int


async def newest(session: AsyncSession, limit: int, since: float) -> dict[str, int]:
    """The version that was said to be served when each of the newest answers was asked for, by the answer's id."""
    recent = select(RunRow.id).order_by(RunRow.id.desc()).limit(_LOOKED_AT).subquery()
    query = select(RunRow.msg_id, RunRow.policy_version).join(recent, recent.c.id == RunRow.id)
    query = query.where(RunRow.msg_id.is_not(None), RunRow.policy_version.is_not(None), RunRow.updated_at > since)
    rows = await session.execute(query.order_by(RunRow.id.desc()).limit(limit))
    return {row.msg_id: row.policy_version for row in rows}


def compared(versions: Sequence[tuple[int, int]], newest: int | None) -> OtherVersion | None:
    """Return the answers of another version; None unless most of them are.

    A version between the one that was said before an answer and the newest one was loaded while it was given.

    Args:
        versions: as said, and as recorded.
        newest: the version that the Explorer says now.
    """
    wrong = Counter((said, by) for said, by in versions if by < said or by > max(said, newest or 0))
    if len(versions) < _ENOUGH or 2 * wrong.total() <= len(versions):
        return None
    [((said, recorded), _)] = wrong.most_common(1)
    return OtherVersion(wrong.total(), len(versions), said, recorded)
