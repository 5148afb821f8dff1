"""The experience buffer, as far as it can be read from here: how many rows wait for the Trainer."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import URL, DateTime, column, func, select, table
from sqlalchemy.ext.asyncio import create_async_engine

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
_PATIENCE = 10.0
"""Seconds for the whole look: a server that does not answer is left alone."""


@dataclass(frozen=True, slots=True)
class Rows:
    """
    Attributes:
        total: all that the Explorer has written.
        waiting: not taken by the Trainer yet.
        waiting_long: those of them that were written more than `age` seconds ago.
    """

    total: int
    waiting: int
    waiting_long: int
    age: float


def count_rows(url: URL | None, name: str, age: float) -> Rows | None:
    """The rows of Trinity's table, or None where it cannot be read from here (or is not Trinity's)."""
    driver = _DRIVERS.get(url.get_backend_name()) if url is not None else None
    if url is None or driver is None:
        return None
    if driver.startswith("sqlite") and not os.path.isfile(url.database or ""):
        return None  # to open it would make it
    try:
        return asyncio.run(asyncio.wait_for(_count(url.set(drivername=driver), name, age), _PATIENCE))
    except Exception:  # noqa: BLE001 - drivers raise errors of their own, such as asyncpg's of a wrong password
        return None


async def _count(url: URL, name: str, age: float) -> Rows:
    rows = table(name, column("consumed"), column("timestamp", DateTime()))
    waiting = rows.c.consumed == 0
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:
            # the database's own clock dated the rows
            now: datetime = (await connection.execute(select(func.current_timestamp(type_=DateTime())))).scalar_one()
            old = rows.c.timestamp < now.replace(tzinfo=None) - timedelta(seconds=age)
            counts = select(func.count(), func.count().filter(waiting), func.count().filter(waiting & old)).select_from(
                rows
            )
            total, waiting_now, waiting_long = (await connection.execute(counts)).one()
    finally:
        await engine.dispose()
    return Rows(total, waiting_now, waiting_long, age)
