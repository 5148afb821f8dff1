"""Spending of the last hour, counted by the minute, so that it holds over restarts and for all sidecars."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.sidecars import SpentRow

Purpose = Literal["runs", "judge", "live", "evaluation"]

_MINUTE = 60.0
_HOUR = 60
"""Minutes: the one that has begun, and those before it."""


class Spent(NamedTuple):
    """Amounts that were spent."""

    requests: int
    tokens: int


async def spent(session: AsyncSession, purpose: Purpose, now: float) -> Spent:
    """Within the hour that ends with the minute of `now`."""
    query = select(func.coalesce(func.sum(SpentRow.requests), 0), func.coalesce(func.sum(SpentRow.tokens), 0))
    query = query.where(SpentRow.purpose == purpose, SpentRow.minute > _minute(now) - _HOUR)
    requests, tokens = (await session.execute(query)).one()
    return Spent(int(requests), int(tokens))


async def spend(session: AsyncSession, purpose: Purpose, requests: int, tokens: int, now: float) -> None:
    """Spend so much."""
    insert = (sqlite if session.get_bind().dialect.name == "sqlite" else postgresql).insert(SpentRow)
    row = insert.values(purpose=purpose, minute=_minute(now), requests=requests, tokens=tokens)
    more = {
        "requests": SpentRow.requests + row.excluded.requests,
        "tokens": SpentRow.tokens + row.excluded.tokens,
    }
    await session.execute(row.on_conflict_do_update(index_elements=["purpose", "minute"], set_=more))


async def forget(session: AsyncSession, now: float) -> None:
    """Delete what is older than an hour."""
    await session.execute(delete(SpentRow).where(SpentRow.minute <= _minute(now) - _HOUR))


async def bring_back(session: AsyncSession, now: float, latest: float) -> None:
    """Move spending with a time after `latest`, from a clock that was set back since, to now."""
    for purpose in get_args(Purpose):
        ahead = delete(SpentRow).where(SpentRow.purpose == purpose, SpentRow.minute > _minute(latest))
        found = await session.execute(ahead.returning(SpentRow.requests, SpentRow.tokens))
        for requests, tokens in found.all():
            await spend(session, purpose, requests, tokens, now)


def _minute(now: float) -> int:
    return int(now // _MINUTE)
