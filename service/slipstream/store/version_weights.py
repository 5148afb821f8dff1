"""Digests of the weights of versions: which are to be computed, and which versions have the same ones."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.versions import VersionRow

_NEWEST = 2
"""Versions that are looked at: the newest one, and the one that it is compared with."""


class Undigested(NamedTuple):
    """A version whose weights have no digest yet.

    Attributes:
        made_at: when its weights were written, Unix seconds by the clock of the file system.
        kept: the folder that keeps it; None unless it is kept.
    """

    version: int
    made_at: float
    kept: str | None


async def undigested(session: AsyncSession) -> list[Undigested]:
    """The newest versions whose weights have no digest, in the order in which they were written."""
    columns = select(VersionRow.version, VersionRow.made_at, VersionRow.kept_path, VersionRow.weights)
    newest = columns.where(VersionRow.made_at.is_not(None)).order_by(VersionRow.made_at.desc()).limit(_NEWEST)
    rows = (await session.execute(newest)).all()
    return [Undigested(row.version, row.made_at, row.kept_path) for row in reversed(rows) if row.weights is None]


async def note(session: AsyncSession, one: Undigested, digest: str) -> None:
    """Note the digest of a version, unless another training has its number by now."""
    mine = update(VersionRow).where(VersionRow.version == one.version, VersionRow.made_at == one.made_at)
    await session.execute(mine.values(weights=digest))


async def same_as_before(session: AsyncSession, version: VersionRow) -> int | None:
    """The newest version that was made before this one and has the same weights; None without any."""
    if version.weights is None or version.made_at is None:
        return None
    same = select(VersionRow.version).where(
        VersionRow.weights == version.weights,
        VersionRow.version != version.version,
        VersionRow.made_at < version.made_at,
    )
    return await session.scalar(same.order_by(VersionRow.made_at.desc()).limit(1))
