"""Tokens of each day: added up by kind and tenant, kept for 90 days."""

from __future__ import annotations

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.sidecars import TokenDayRow
from slipstream.usage import Kind, Tokens, Used

KEPT = 90
"""Days."""

_DAY = 86400.0


def day_of(now: float) -> int:
    """The number of a day since 1970, in UTC."""
    return int(now // _DAY)


async def add(session: AsyncSession, used: Used, now: float) -> None:
    """Add what was used to today, and delete days that are over their time."""
    insert = (sqlite if session.get_bind().dialect.name == "sqlite" else postgresql).insert(TokenDayRow)
    today = day_of(now)
    for (kind, tenant), tokens in sorted(used.items()):
        row = insert.values(day=today, kind=kind.value, tenant=tenant, **tokens._asdict())
        more = {name: getattr(TokenDayRow, name) + row.excluded[name] for name in Tokens._fields}
        await session.execute(row.on_conflict_do_update(index_elements=["day", "kind", "tenant"], set_=more))
    await session.execute(delete(TokenDayRow).where(TokenDayRow.day <= today - KEPT))


async def since(session: AsyncSession, first: int, tenant: str | None = None) -> dict[int, dict[Kind, Tokens]]:
    """Tokens of each day from this one on, by kind, the newest day first.

    Args:
        first: the number of the day.
        tenant: whose; None for all together.
    """
    sums = [func.sum(getattr(TokenDayRow, name)).label(name) for name in Tokens._fields]
    query = select(TokenDayRow.day, TokenDayRow.kind, *sums).where(TokenDayRow.day >= first)
    if tenant is not None:
        query = query.where(TokenDayRow.tenant == tenant)
    query = query.group_by(TokenDayRow.day, TokenDayRow.kind).order_by(TokenDayRow.day.desc(), TokenDayRow.kind)
    found: dict[int, dict[Kind, Tokens]] = {}
    for row in await session.execute(query):
        found.setdefault(row.day, {})[Kind(row.kind)] = Tokens(int(row.answers), int(row.input), int(row.output))
    return found
