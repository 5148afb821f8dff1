"""Retention on a store that holds much: in batches, each a short transaction."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from filled import fill
from loops import Loop, RunLoop
from on_disk import holds
from prometheus_client import CollectorRegistry
from serving import until
from sqlalchemy import text
from stores import ON_BOTH_STORES
from structlog.testing import capture_logs

from slipstream.capture.retention import Retention
from slipstream.metrics import Metrics
from slipstream.store import database as store
from slipstream.store import erasure, quarantine, read_models, tasks
from slipstream.store.database import Database
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow


@pytest.fixture
async def database(tmp_path: Path) -> Database:
    path = tmp_path / "slipstream.db"
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    await database.close()
    fill(path, 2000, every=5)
    return Database(f"sqlite+aiosqlite:///{path}")


def log_of(folder: Path) -> bytes:
    """What is in SQLite's log."""
    return (folder / "slipstream.db-wal").read_bytes()


async def _count(database: Database, table: str) -> int:
    async with database.read() as session:
        return int(await session.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


async def test_a_sweep_deletes_all_that_is_due_in_batches(database: Database) -> None:
    """A thousand tasks, with what hangs on them: half of them are older than half a day."""
    half = Retention(
        database, Metrics(CollectorRegistry()), retention=43200.0, audit_retention=365 * 86400.0, clock=time.time
    )
    left = [await _count(database, "tasks")]
    with capture_logs() as logs:
        while await half.step():
            left.append(await _count(database, "tasks"))
    assert left == [1000, 800, 600]
    told = [line for line in logs if line["event"] == "retention"]
    assert [line["deleted_tasks"] for line in told] == [pytest.approx(500, abs=2)], "told once a sweep"
    kept, feedback = await _count(database, "tasks"), await _count(database, "feedback")
    assert kept == pytest.approx(500, abs=2)
    assert await _count(database, "calls") == 2 * kept
    assert await _count(database, "runs") == pytest.approx(6 * kept / 5, abs=6)
    assert feedback == pytest.approx(kept / 5, abs=1)
    assert await _count(database, "marks") == 0
    await database.close()


@pytest.mark.slow
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
    retention = Retention(
        database, Metrics(CollectorRegistry()), retention=2 * 86400.0, audit_retention=365 * 86400.0, clock=time.time
    )
    assert await retention.step() is True
    assert await _count(database, "feedback") == before - 200
    await database.close()


@pytest.mark.slow
@ON_BOTH_STORES
async def test_groups_that_are_deleted_before_they_were_delivered_are_counted(run_loop: RunLoop) -> None:
    kept = {"runs": {"repeat_time": 2}, "commit": {"interval": "1h", "on_shutdown": False}}
    async with run_loop(**kept) as loop:
        await loop.chat("delivered", {"x-slipstream-task-id": "delivered"})
        await until(lambda: loop.ready(2))
        assert (await loop.commit())["groups"] == 1
        await loop.chat("ready", {"x-slipstream-task-id": "ready"})
        await until(lambda: loop.ready(2))
    async with run_loop(**kept, capture={"retention": "10ms"}) as loop:
        await until(lambda: _counted(loop, 'slipstream_groups_total{outcome="expired"} 1.0'))
        await until(lambda: _nothing_left(loop))
        assert await _counted(loop, 'slipstream_groups_total{outcome="expired"} 1.0'), "the other was delivered"


async def test_no_byte_of_what_is_past_its_retention_is_left_in_the_files(run_loop: RunLoop, tmp_path: Path) -> None:
    marker = "3f2c77-otter"
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        for number in range(20):  # pages are shared with what stays
            for task_id, name in ((f"old-{number}", marker), (f"new-{number}", "somebody")):
                headers = {"x-slipstream-task-id": task_id, "x-slipstream-metadata": f'{{"name": "{name} {number}"}}'}
                answer = await loop.chat(f"I am {name} {number}, " * 20, headers)
                said = {"msg_id": answer["id"], "thumbs": "up", "comment": f"thanks, says {name} {number}"}
                assert (await loop.client.post("/feedback", json=said)).status_code == 202
        await loop.chat(f"I am {marker}, " * 50_000, {"x-slipstream-task-id": "old-and-long"})
        await until(lambda: loop.task("old-and-long"))
        assert holds(tmp_path, f"I am {marker} 19")
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    long_ago = time.time() - 2 * 86400
    async with database.write() as session:
        await session.execute(text(f"UPDATE tasks SET updated_at = {long_ago} WHERE id LIKE 'old-%'"))
        await session.execute(text(f"UPDATE feedback SET created_at = {long_ago} WHERE comment LIKE '%{marker}%'"))
    retention = Retention(
        database, Metrics(CollectorRegistry()), retention=86400.0, audit_retention=365 * 86400.0, clock=time.time
    )
    while await retention.step():
        pass
    for sign in (f"I am {marker}", f"thanks, says {marker}", f'"{marker} 1'):
        assert not holds(tmp_path, sign)
    assert holds(tmp_path, "I am somebody 19")
    assert await _count(database, "calls") == 20
    await database.close()


@pytest.mark.parametrize("what", ["a deletion that waited", "an exchange that was set apart", "a mark"])
async def test_every_sweep_that_deletes_empties_the_log(tmp_path: Path, what: str) -> None:
    marker, now = "3f2c77-otter", time.time()
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    retention = Retention(
        database, Metrics(CollectorRegistry()), retention=86400.0, audit_retention=365 * 86400.0, clock=lambda: now
    )
    assert await retention.step() is False
    async with database.write() as session:
        if what == "a mark":
            await tasks.add_mark(session, tasks.NewMark("m", None, "a", [], {"said": marker}, 60.0), now - 2 * 86400)
        elif what == "an exchange that was set apart":
            await quarantine.quarantine_exchange(session, marker.encode(), now - 2 * 86400)
        else:
            times = {"created_at": now, "updated_at": now}
            session.add(TaskRow(id="t", session_id="s", meta={"said": marker}, **times))
            await session.flush()
            session.add(GroupRow(id="g", task_id="t", state="committing", updated_at=now))
            assert (await erasure.erase(session, "session_id", "s", now + 1)).pending_groups == 1
    async with database.write() as session:
        await session.execute(text("UPDATE groups SET state = 'dropped'"))
    assert holds(tmp_path, marker)
    await retention.step()
    assert not holds(tmp_path, marker)
    await database.close()


async def test_a_deletion_is_remembered_as_long_as_a_restore_could_bring_anything_back(tmp_path: Path) -> None:
    now, day = time.time(), 86400.0
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    async with database.write() as session:
        for ref, age in (("judgements of it are kept", 89), ("nothing of it is kept", 91)):
            await erasure.erase(session, "session_id", ref, now - age * day)
    for retention, remembered in ((100 * day, 2), (day, 1)):
        sweep = Retention(
            database, Metrics(CollectorRegistry()), retention=retention, audit_retention=day, clock=lambda: now
        )
        await sweep.step()
        assert await _count(database, "erasures") == remembered
    await database.close()


async def test_a_log_that_somebody_read_all_the_time_is_told_and_emptied_by_the_next_sweep(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_SCRUB_TIMEOUT_MS", 1)
    retention = Retention(
        database, Metrics(CollectorRegistry()), retention=30 * 86400.0, audit_retention=365 * 86400.0, clock=time.time
    )
    async with database.read() as session:
        await session.scalar(text("SELECT count(*) FROM tasks"))
        async with database.write() as writing:
            await writing.execute(text("DELETE FROM marks"))
        with capture_logs() as logs:
            assert await database.scrub() is False
            await retention.step()
        assert [line["event"] for line in logs] == ["deleted_data_in_log"] * 2
        assert log_of(tmp_path)
    await retention.step()
    assert not log_of(tmp_path)
    await database.close()


@ON_BOTH_STORES
async def test_what_later_tasks_repeat_stays_until_the_last_of_them_is_due(
    run_loop: RunLoop, store_url: str, tmp_path: Path
) -> None:
    marker = "3f2c77-otter"
    messages = [{"role": "system", "content": ""}] * 2 + [{"role": "user", "content": f"I am {marker}"}]
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        for task_id in ("t0", "t1", "t2"):
            answer = await loop.chat(list(messages), {"x-slipstream-task-id": task_id})
            await until(lambda: loop.task(task_id))  # noqa: B023 - it is called here
            messages += [answer["choices"][0]["message"], {"role": "user", "content": f"and after {task_id}?"}]
    database = Database(store_url)
    retention = Retention(
        database, Metrics(CollectorRegistry()), retention=86400.0, audit_retention=365 * 86400.0, clock=time.time
    )
    for due, left in (("t0", 3), ("t2", 2), ("t1", 0)):
        async with database.write() as session:
            await session.execute(text("UPDATE tasks SET updated_at = 1.0 WHERE id = :due"), {"due": due})
        while await retention.step():
            pass
        assert await _count(database, "segments") == left
        if left:
            async with database.read() as session:
                [call] = (await read_models.tasks(session, ["t1"]))["t1"].calls
            assert list(call.messages) == messages[:5]
    assert not holds(tmp_path, marker)
    await database.close()


async def _counted(loop: Loop, line: str) -> bool:
    return line in (await loop.client.get("/metrics")).text


async def _nothing_left(loop: Loop) -> bool:
    return (await loop.status())["groups"] == {}
