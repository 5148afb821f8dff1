"""A version that is compared by one of several sidecars on a store: rows written from outside, and who decides."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sidecars_sharing import Member
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from stores import stored_rows

UNITS = (
    "INSERT INTO units (version, unit, arm, epoch, first_at, last_at, calls, failures, fallbacks, slowest) "
    "VALUES (8, :unit, :arm, 1, :at, :at, 1, :failed, 0, 0.2)"
)


async def write(store_url: str, statement: str, *rows: dict[str, Any]) -> None:
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.execute(text(statement), list(rows) or None)
    await engine.dispose()


async def write_version(store_url: str) -> None:
    await write(store_url, "INSERT INTO versions (version, seen_at, experiences) VALUES (8, 1, 0)")


async def write_units(store_url: str, each: int, *, failing: str) -> None:
    """So many units of each arm of version 8, of which those of one arm fail."""
    at = time.time()
    arms = ["control", "treatment"] * each
    rows = [
        {"unit": f"u{number}", "arm": arm, "at": at, "failed": int(arm == failing)} for number, arm in enumerate(arms)
    ]
    await write(store_url, UNITS, *rows)


async def decider(store_url: str, members: Sequence[Member], table: str) -> Member | None:
    """The sidecar that decides the running row of `rollouts` or `experiments`."""
    query = f"SELECT s.name FROM {table} c JOIN sidecars s ON s.id = c.owner WHERE c.state = 'running'"
    names = [name for (name,) in await stored_rows(store_url, query)]
    found = [member for member in members if names and names[0].endswith(member.loop.url.rpartition(":")[2])]
    return found[0] if found else None
