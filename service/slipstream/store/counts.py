"""Counts that cost the same however much the store holds.

What is still under way is counted in whole, by an index: there is as much of it as there is work. What has ended stays
until its retention is over, millions of rows of it, and is counted among the newest.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

NEWEST = 1000
"""Rows that a count looks back over: enough to see shares of a percent, and about a millisecond's work."""


def newest(by: InstrumentedAttribute[Any], *columns: ColumnElement[Any]) -> Select[Any]:
    """These columns of the newest rows, in the order of an indexed column."""
    return select(*columns).order_by(by.desc()).limit(NEWEST)


async def by_state(
    session: AsyncSession,
    state: InstrumentedAttribute[str],
    by: InstrumentedAttribute[Any],
    under_way: ColumnElement[bool],
) -> dict[str, int]:
    """Count the rows in each state: all of those under way, and of the others those among the newest.

    Args:
        by: what the newest are newest by; indexed.
        under_way: what is still to come to its end; served by an index.
    """
    recent = newest(by, state.label("state"), under_way.label("under_way")).subquery()
    ended = select(recent.c.state, func.count()).where(~recent.c.under_way).group_by(recent.c.state)
    alive = select(state, func.count()).where(under_way).group_by(state)
    counts: Counter[str] = Counter()
    for query in (ended, alive):
        counts.update(dict((await session.execute(query)).all()))
    return dict(counts)
