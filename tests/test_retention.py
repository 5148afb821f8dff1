"""Retention on a store that holds much: in batches, each a short transaction."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from filled import fill
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from structlog.testing import capture_logs

from slipstream.metrics import Metrics
from slipstream.retention import Retention
from slipstream.store.database import Database


@pytest.fixture
async def database(tmp_path: Path) -> Database:
    path = tmp_path / "slipstream.db"
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    await database.close()
    fill(path, 2000, every=5)
    return Database(f"sqlite+aiosqlite:///{path}")


async def _count(database: Database, table: str) -> int:
    async with database.read() as session:
        return int(await session.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


async def test_a_sweep_deletes_all_that_is_due_in_batches(database: Database) -> None:
    """A thousand tasks, with what hangs on them: half of them are older than half a day."""
    half = Retention(database, Metrics(CollectorRegistry()), retention=43200.0, clock=time.time)
    left = [await _count(database, "tasks")]
    with capture_logs() as logs:
        while await half.step():
            left.append(await _count(database, "tasks"))
    assert left == [1000, 800, 600]
    told = [line for line in logs if line["event"] == "retention"]
    assert [line["deleted_tasks"] for line in told] == [pytest.approx(500, abs=2)], "told once a sweep"
    tasks, feedback = await _count(database, "tasks"), await _count(database, "feedback")
    assert tasks == pytest.approx(500, abs=2)
    assert await _count(database, "calls") == 2 * tasks
    assert await _count(database, "runs") == pytest.approx(6 * tasks / 5, abs=6)
    assert feedback == pytest.approx(tasks / 5, abs=1)
    assert await _count(database, "marks") == 0
    await database.close()


async def test_a_sweep_takes_any_amount_of_feedback(database: Database) -> None:
    many = 260_000  # more than SQLite takes as parameters of one statement
    async with database.write() as session:
        await session.execute(
            text(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :many - 1) "
                "INSERT INTO feedback (id, reward, created_at) SELECT 'old' || i, 1.0, i FROM n"
            ),
            {"many": many},
        )
    before = await _count(database, "feedback")
    retention = Retention(database, Metrics(CollectorRegistry()), retention=2 * 86400.0, clock=time.time)
    assert await retention.step() is True
    assert await _count(database, "feedback") == before - 200
    await database.close()
