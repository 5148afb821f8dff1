"""What the stages ask of the store again and again stays cheap however much it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import event, text

from slipstream.metrics import Metrics
from slipstream.retention import Retention
from slipstream.store import commits, feedback, runs, tasks
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.feedback import NewFeedback
from slipstream.store.tables import CommitRow

NOW = 1_000_000.0
BODY = pack({"messages": [{"role": "user", "content": "hello"}]})


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    yield database
    await database.close()


def _call(task_id: str, msg_id: str) -> tasks.NewCall:
    return tasks.NewCall("s", task_id, BODY, BODY, msg_id, 0.1, NOW, True, False, frozenset(), {})


async def test_no_stage_goes_through_a_whole_table(database: Database) -> None:
    asked: list[tuple[str, Any]] = []

    @event.listens_for(database._engine.sync_engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if not statement.startswith(("INSERT", "EXPLAIN")):
            asked.append((statement, parameters[0] if many else parameters))

    commit = CommitRow(
        trigger="test", groups=0, experiences=0, explorer_ready=0, explorer_total=0, explorer_step=0, started_at=NOW
    )
    async with database.write() as session:
        await tasks.add_calls(session, [_call("t", "m")], NOW)
        await tasks.complete_idle(session, NOW)
        assert await tasks.undecided(session, 50) == ["t"]
        [call] = await runs.calls_without_group(session, "t")
        await runs.plan(session, call, 1, NOW)
        assert await runs.waiting(session) == 1
        [run] = await runs.claim(session, 10, NOW)
        answered = {"latency": 0.1, "policy_version": 0, "now": NOW, "due_at": NOW}
        await runs.answer(session, run.pk, msg_id="p", request=BODY, answer=BODY, **answered)
        for kind, ref in (("msg_id", "m"), ("msg_id", "p"), ("task_id", "t"), ("session_id", "s")):
            await feedback.add(session, NewFeedback(ref + kind, kind, (ref,), 1.0), NOW)
        assert await runs.due_for_scoring(session, 16, NOW) == [run.pk]
        assert await runs.picture(session, run.pk) is not None
        assert await runs.score(session, run.pk, 3, 0.5, {}, NOW) is False
        await runs.fail(session, run.pk, "reason", NOW)
        await commits.ready_experiences(session)
        await commits.unfinished(session)
        await commits.begin(session, commit)
        await commits.deliver(session, commit.id, NOW)
        await tasks.expire_marks(session, NOW)
        await feedback.give_up_waiting(session, NOW)
        await tasks.delete_older(session, NOW + 1, 500)
        await feedback.delete_older(session, NOW + 1, 500)
    scans = set()
    async with database.read() as session:
        connection = await session.connection()
        for statement, parameters in asked:
            plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            scans |= {(step.detail, statement) for step in plan if step.detail.startswith("SCAN")}
    assert {scan for scan in scans if "USING" not in scan[0] and scan[0] != "SCAN CONSTANT ROW"} == set()


async def test_retention_takes_any_amount_of_feedback(database: Database) -> None:
    many = 260_000  # more than SQLite takes as parameters of one statement
    async with database.write() as session:
        await session.execute(
            text(
                "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :many - 1) "
                "INSERT INTO feedback (id, reward, created_at) SELECT 'f' || i, 1.0, i FROM n"
            ),
            {"many": many},
        )
    retention = Retention(database, Metrics(CollectorRegistry()), retention=1.0, clock=lambda: NOW)
    assert await retention.step() is True
    async with database.read() as session:
        left = await session.scalar(text("SELECT count(*) FROM feedback"))
    assert left == many - 500
