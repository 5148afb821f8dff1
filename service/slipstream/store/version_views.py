"""Versions as people see them, with the rewards of the runs that each answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import aliases
from slipstream.store.tables.versions import VersionRow
from slipstream.store.version_rewards import Sums, mean_and_error, undelivered_rewards


async def page(session: AsyncSession, limit: int, before: int | None = None) -> tuple[list[dict[str, Any]], int | None]:
    """Versions, the newest first, and where the next page begins; None after the last.

    Args:
        before: that of the page before.
    """
    query = select(VersionRow).order_by(VersionRow.version.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(VersionRow.version < before)
    rows = (await session.scalars(query)).all()
    shown = rows[:limit]
    return await _views(session, shown), shown[-1].version if len(rows) > limit else None


async def view(session: AsyncSession, version: int) -> dict[str, Any] | None:
    """One version; None if there is no such version."""
    row = await session.get(VersionRow, version)
    return None if row is None else (await _views(session, [row]))[0]


async def _views(session: AsyncSession, rows: Sequence[VersionRow]) -> list[dict[str, Any]]:
    names = await aliases.of(session, [row.version for row in rows])
    waiting = await undelivered_rewards(session, [row.version for row in rows])
    return [_view(row, names[row.version], waiting.get(row.version, (0, 0.0, 0.0))) for row in rows]


def _view(row: VersionRow, names: list[str], waiting: Sums) -> dict[str, Any]:
    delivered = (row.reward_count, row.reward_sum, row.reward_squares)
    return {
        "version": row.version,
        "state": row.state,
        "state_at": row.state_at,
        "aliases": names,
        "found_at": row.found_at,
        "served_at": row.seen_at,
        "made_at": row.made_at,
        "parent": row.parent,
        "trained_on": row.trained_on,
        "metrics": row.metrics,
        "weights": row.weights,
        "rewards": mean_and_error(*(a + b for a, b in zip(delivered, waiting, strict=True))),
        "checkpoint": row.checkpoint,
        "kept": None if row.kept_path is None else {"path": row.kept_path, "at": row.kept_at, "by": row.kept_by},
        "replaced_at": row.replaced_at,
    }
