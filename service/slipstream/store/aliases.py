"""Names for versions, such as `champion`, and which version each meant when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.versions import AliasChangeRow, AliasRow


async def point(session: AsyncSession, name: str, version: int, key: str | None, now: float) -> int | None:
    """Have a name mean a version. Returns the version that it meant before, if it was there.

    Args:
        key: the name of the key that asks for it; None where none is asked for.
    """
    row = await session.get(AliasRow, name)
    before = None if row is None else row.version
    if before == version:
        return before
    if row is None:
        session.add(AliasRow(name=name, version=version, changed_at=now))
    else:
        row.version, row.changed_at = version, now
    session.add(AliasChangeRow(name=name, version=version, at=now, key=key))
    return before


async def remove(session: AsyncSession, name: str, key: str | None, now: float) -> int | None:
    """Take a name away; its history stays. Returns the version that it meant; None if there is no such name."""
    row = await session.get(AliasRow, name)
    if row is None:
        return None
    await session.delete(row)
    session.add(AliasChangeRow(name=name, version=None, at=now, key=key))
    return row.version


async def version_of(session: AsyncSession, name: str) -> int | None:
    """The version that a name means; None if there is no such name."""
    row = await session.get(AliasRow, name)
    return None if row is None else row.version


async def listed(session: AsyncSession) -> list[dict[str, Any]]:
    """All names in alphabetical order, with their versions."""
    rows = await session.scalars(select(AliasRow).order_by(AliasRow.name))
    return [{"name": row.name, "version": row.version, "changed_at": row.changed_at} for row in rows]


async def of(session: AsyncSession, versions: Sequence[int]) -> dict[int, list[str]]:
    """The names of each of these versions, in alphabetical order."""
    rows = await session.scalars(select(AliasRow).where(AliasRow.version.in_(versions)).order_by(AliasRow.name))
    found: dict[int, list[str]] = {version: [] for version in versions}
    for row in rows:
        found[row.version].append(row.name)
    return found


async def history(
    session: AsyncSession, name: str, limit: int, before: int | None = None
) -> tuple[list[dict[str, Any]], int | None]:
    """Changes of a name, the newest first, and where the next page begins; None after the last.

    Args:
        before: that of the page before.
    """
    query = select(AliasChangeRow).where(AliasChangeRow.name == name).order_by(AliasChangeRow.id.desc())
    if before is not None:
        query = query.where(AliasChangeRow.id < before)
    rows = (await session.scalars(query.limit(limit + 1))).all()
    shown = rows[:limit]
    changes = [{"version": row.version, "at": row.at, "key": row.key} for row in shown]
    return changes, shown[-1].id if len(rows) > limit else None
