"""Experiences in Trinity-RFT's buffer that no training step has taken yet.

Its table is named as the buffer, and has `consumed`, by which its Trainer knows what it took, and `model_version`
(`buffer/schema/sql_schema.py` of 0.6.0).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from slipstream.trinity.job import job_directory

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
"""Those that Trinity itself brings."""


def discard_outside(document: Mapping[str, Any], first: int, last: int) -> int:
    """Have the Trainer never take what other versions than `first` to `last` sampled: earlier ones, and those above, of
    a training that its Trainer's restart gave up.

    Args:
        document: the file of the policy's Trainer.

    Returns:
        How many experiences were discarded; 0 if there is no such table.
    """
    buffer = ((document.get("buffer") or {}).get("trainer_input") or {}).get("experience_buffer") or {}
    if buffer.get("storage_type") != "sql":
        return 0  # a queue is in the memory of a process that has ended
    name = buffer.get("name") or "experience_buffer"
    url = buffer.get("path")
    if not url:
        path = job_directory(document) / "buffer" / f"{name}.db"
        if not path.exists():
            return 0
        url = f"sqlite:///{path}"
    return asyncio.run(_discard(url, name, first, last))


async def _discard(url: str, table: str, first: int, last: int) -> int:
    from sqlalchemy import ColumnClause, column, inspect, or_, update
    from sqlalchemy import table as named
    from sqlalchemy.engine import make_url
    from sqlalchemy.ext.asyncio import create_async_engine

    parsed = make_url(url)
    engine = create_async_engine(parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername)))
    consumed: ColumnClause[int] = column("consumed")
    sampled_by: ColumnClause[int | None] = column("model_version")
    change = (
        update(named(table, consumed, sampled_by))
        .where(consumed == 0, or_(sampled_by.is_(None), sampled_by < first, sampled_by > last))
        .values(consumed=1)
    )
    try:
        async with engine.begin() as connection:
            if not await connection.run_sync(lambda sync: inspect(sync).has_table(table)):
                return 0
            return (await connection.execute(change)).rowcount
    finally:
        await engine.dispose()
