"""Versions that were trained on data sets."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.versions import VersionRow


async def trained_on(session: AsyncSession, names: Collection[str]) -> dict[str, list[int]]:
    """The versions that were trained on data sets of these names, and those that went on from them."""
    if not names:
        return {}
    query = select(VersionRow.version, VersionRow.parent, VersionRow.trained_on).order_by(VersionRow.version)
    found: dict[str, list[int]] = {name: [] for name in names}
    for version, parent, on in await session.execute(query):
        dataset = (on or {}).get("dataset") or {}
        own = {dataset.get("name"), *dataset.get("also", ())}  # rows of earlier ones may be among them
        for name, versions in found.items():
            if name in own or parent in versions:
                versions.append(version)
    return found
