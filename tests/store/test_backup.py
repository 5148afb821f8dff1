"""Backups: whole or refused, for either database, and restored with what was deleted since deleted again."""

from __future__ import annotations

import errno
import os
import tracemalloc
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from stores import ON_BOTH_STORES, stored_rows

from slipstream.capture.redacted import RedactedExchange, is_of, pack_exchanges
from slipstream.errors import ConfigError, StoreAway
from slipstream.store import erasure, quarantine, schema
from slipstream.store.backup import back_up
from slipstream.store.backup_file import BackupError, Manifest, opened, written
from slipstream.store.bulk import insert_rows
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database
from slipstream.store.restore import NotEmpty, restore
from slipstream.store.sidecars import register
from slipstream.store.tables.capture import CallRow, CapturedRow, QuarantinedExchangeRow, TaskRow
from slipstream.store.tables.feedback import FeedbackRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.segments import SegmentRow

KEY = Cipher([b"k" * 32])
META = {"order": 2**70, "note": "snow \u2603", "none": None}


async def fill(url: str, cipher: Cipher | None = None) -> None:
    """Two sessions, of a task each, whose calls have segments; one has a run that has ended, and one that was numbered
    and deleted."""
    database = Database(url, cipher)
    await database.open()
    async with database.write() as session:
        for number in (1, 2, 3):
            session.add(SegmentRow(id=number, parent_id=number - 1 or None, body=b"part"))
            await session.flush()
        first = await session.get_one(SegmentRow, 1)
        first.body = b"part \x00\xff"  # PostgreSQL has it behind the others now
        for name in ("t1", "t2"):
            session.add(
                TaskRow(
                    id=name,
                    session_id=f"session-{name}",
                    state="complete",
                    revision=1,
                    meta=META,
                    decided=True,
                    selected=True,
                    created_at=1.5,
                    updated_at=2.5,
                )
            )
            await session.flush()
            call = CallRow(
                task_id=name,
                position=0,
                msg_id=f"m-{name}",
                request=b"asked \x00\xff",
                answer=b"said",
                latency=0.5,
                started_at=1.25,
                segment_id=3,
            )
            session.add(call)
            await session.flush()
            session.add(GroupRow(id=f"{name}.0", task_id=name, call_id=call.id, updated_at=3.0))
            await session.flush()
            session.add(RunRow(group_id=f"{name}.0", run_id=0, request=b"r", answer=None, updated_at=3.0))
        session.add(FeedbackRow(id="f1", reward=0.25, comment="kind words", created_at=4.0))
        await session.flush()
        session.add(RunRow(group_id="t1.0", run_id=1, updated_at=3.0))
        await session.flush()
        await session.execute(text("DELETE FROM runs WHERE run_id = 1"))
    await database.close()


async def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("tasks", "calls", "segments", "groups", "runs", "feedback", "store_keys", "commits", "erasures")
    return {table: sorted(await stored_rows(url, f"SELECT * FROM {table}"), key=str) for table in tables}


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> str:
    """Another store of the same database."""
    if store_url.startswith("sqlite"):
        return f"sqlite+aiosqlite:///{tmp_path}/other/slipstream.db"
    fresh: str = request.getfixturevalue("empty_postgres")()
    return fresh


@pytest.mark.sampled(1)
@ON_BOTH_STORES
@pytest.mark.parametrize("cipher", [None, KEY], ids=["plain", "encrypted"])
async def test_a_restored_store_has_the_same_rows(
    store_url: str, empty_url: str, tmp_path: Path, cipher: Cipher | None
) -> None:
    await fill(store_url, cipher)
    made = await back_up(store_url, tmp_path / "backup")
    assert made.keys == (cipher.fingerprints if cipher else ())
    restored = await restore(empty_url, tmp_path / "backup", replace=False, group_size=1, now=9.0, is_of=is_of)
    assert restored.manifest == made
    assert await everything(empty_url) == await everything(store_url)
    database = Database(empty_url, cipher)
    await database.open()
    async with database.write() as session:
        found = await session.get_one(FeedbackRow, "f1")
        assert found.comment == "kind words"
        assert (await session.get_one(TaskRow, "t1")).meta == META
        run = RunRow(group_id="t1.0", run_id=2, updated_at=5.0)
        session.add(run)
        await session.flush()
        assert run.id == 4, "the number of the deleted run is not given again"
    await database.close()


async def test_what_is_encrypted_stays_so_and_its_key_is_not_in_the_file(tmp_path: Path) -> None:
    url, copy = f"sqlite+aiosqlite:///{tmp_path}/a.db", f"sqlite+aiosqlite:///{tmp_path}/b.db"
    await fill(url, KEY)
    await back_up(url, tmp_path / "backup")
    with zipfile.ZipFile(tmp_path / "backup") as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"kind words" not in content
    assert b"k" * 32 not in content
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    await restore(copy, tmp_path / "backup", replace=False, group_size=1, now=9.0, is_of=is_of)
    with pytest.raises(ConfigError, match=KEY.fingerprints[0]):
        await Database(copy).open()


async def test_a_store_moves_from_sqlite_to_postgresql(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source, target = f"sqlite+aiosqlite:///{tmp_path}/a.db", request.getfixturevalue("empty_postgres")()
    await fill(source)
    await back_up(source, tmp_path / "there")
    await restore(target, tmp_path / "there", replace=False, group_size=1, now=9.0, is_of=is_of)
    await back_up(target, tmp_path / "back")
    await restore(
        f"sqlite+aiosqlite:///{tmp_path}/b.db", tmp_path / "back", replace=False, group_size=1, now=9.0, is_of=is_of
    )
    assert await everything(f"sqlite+aiosqlite:///{tmp_path}/b.db") == await everything(source)


async def test_a_store_that_holds_something_is_replaced_only_on_request(store_url: str, tmp_path: Path) -> None:
    await fill(store_url)
    await back_up(store_url, tmp_path / "backup")
    with pytest.raises(NotEmpty, match=r"2 rows in tasks.*--replace"):
        await restore(store_url, tmp_path / "backup", replace=False, group_size=1, now=9.0, is_of=is_of)
    before = await everything(store_url)
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM feedback"))
        await connection.execute(text("UPDATE tasks SET selected = false"))
    await engine.dispose()
    await restore(store_url, tmp_path / "backup", replace=True, group_size=1, now=9.0, is_of=is_of)
    assert await everything(store_url) == before


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_what_was_deleted_since_the_backup_is_deleted_again(store_url: str, tmp_path: Path) -> None:
    await fill(store_url)
    await back_up(store_url, tmp_path / "backup")
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        assert (await erasure.erase(session, "session_id", "session-t1", 7.0)).rows["tasks"] == 1
    async with database.read() as session:
        told = await erasure.told(session, "session_id", "session-t1")
    await database.close()
    restored = await restore(store_url, tmp_path / "backup", replace=True, group_size=1, now=9.0, is_of=is_of)
    assert restored.erased == 1
    assert await stored_rows(store_url, "SELECT id FROM tasks") == [("t2",)]
    await database.open()
    async with database.read() as session:
        assert await erasure.standing(session, 0.0) == {("session_id", "session-t1"): 7.0}
        assert await erasure.told(session, "session_id", "session-t1") == told
    await database.close()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("sealed", "opens", "left"), [(None, None, {2, 3}), (KEY, KEY, {2, 3}), (KEY, None, {3})])
@ON_BOTH_STORES
async def test_what_is_set_apart_of_a_session_that_was_deleted_since_is_deleted_again(
    store_url: str, tmp_path: Path, sealed: Cipher | None, opens: Cipher | None, left: set[int]
) -> None:
    def apart(number: int, session_id: str, at: float) -> QuarantinedExchangeRow:
        kept = RedactedExchange(b"{}", b"{}", b"", None, 0, 0, 1.0, 0.1, session_id=session_id)
        return QuarantinedExchangeRow(id=number, packed=pack_exchanges([kept]), reason="died", created_at=at)

    database = Database(store_url, sealed)
    await database.open()
    async with database.write() as session:
        session.add_all([apart(1, "s", 5.0), apart(2, "another", 5.0), apart(3, "s", 8.0)])
    await back_up(store_url, tmp_path / "backup")
    async with database.write() as session:
        await erasure.erase(session, "session_id", "s", 7.0)
        await quarantine.delete_by_id(session, 1)
    await database.close()
    file = tmp_path / "backup"
    await restore(store_url, file, replace=True, group_size=1, now=9.0, is_of=is_of, cipher=opens)
    assert {pk for (pk,) in await stored_rows(store_url, "SELECT id FROM quarantined_exchanges")} == left


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_store_in_use_is_not_replaced(store_url: str, tmp_path: Path) -> None:
    await fill(store_url)
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        await register(session, "host:8100", 60.0, now=1.0, alone=not database.shared)
    await back_up(store_url, tmp_path / "backup")  # which needs no stop
    with pytest.raises((ConfigError, NotEmpty), match=r"in use by another|host:8100"):
        await restore(store_url, tmp_path / "backup", replace=True, group_size=1, now=9.0, is_of=is_of)
    async with database.read() as session:
        assert (await session.execute(text("SELECT count(*) FROM tasks"))).scalar() == 2
    await database.close()
    if not database.shared:
        await restore(store_url, tmp_path / "backup", replace=True, group_size=1, now=9.0, is_of=is_of)


@pytest.mark.slow
async def test_each_file_that_was_cut_or_changed_is_refused_and_the_store_left_as_it_is(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/a.db"
    await fill(url)
    await back_up(url, tmp_path / "backup")
    whole, before = (tmp_path / "backup").read_bytes(), await everything(url)
    spoiled = [whole[: len(whole) * part // 8] for part in range(8)] + [whole[:-1]]
    spoiled += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(40, len(whole), len(whole) // 25)]
    refused = []
    for number, content in enumerate(spoiled):
        file = tmp_path / f"spoiled-{number}"
        file.write_bytes(content)
        try:
            await restore(url, file, replace=True, group_size=1, now=9.0, is_of=is_of)
        except BackupError as error:
            refused.append(str(error).startswith(f"{file}: "))
        assert await everything(url) == before  # some bytes of an archive, such as a date, say nothing
    assert all(refused)
    assert len(refused) >= 9 + 13, "each table adds a head to the archive, of which more bytes say nothing"


async def test_a_table_that_was_taken_for_another_is_refused(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/a.db"
    await fill(url)
    await back_up(url, tmp_path / "backup")
    with zipfile.ZipFile(tmp_path / "backup") as archive, zipfile.ZipFile(tmp_path / "forged", "w") as forged:
        for name in archive.namelist():
            forged.writestr(name, archive.read("tables/marks" if name == "tables/tasks" else name))
    with pytest.raises(BackupError, match="tasks: expected 2 rows with the checksum"):
        await restore(url, tmp_path / "forged", replace=True, group_size=1, now=9.0, is_of=is_of)


async def test_a_backup_of_an_earlier_schema_is_brought_to_this_one(
    store_url: str, empty_url: str, tmp_path: Path
) -> None:
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.run_sync(schema.upgrade, "0009")
        await connection.execute(
            text(
                "INSERT INTO tasks (id, session_id, state, revision, marked, labels, meta, decided, selected, "
                "created_at, updated_at) VALUES ('t', 's', 'complete', 1, false, '[]', '{}', true, true, 1.0, 1.0)"
            )
        )
    await engine.dispose()
    made = await back_up(store_url, tmp_path / "backup")
    assert made.revision == "0009"
    await restore(empty_url, tmp_path / "backup", replace=False, group_size=1, now=9.0, is_of=is_of)
    database = Database(empty_url)
    await database.open()
    async with database.read() as session:
        assert (await session.get_one(TaskRow, "t")).session_id == "s"
    await database.close()


async def test_a_backup_of_a_later_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/a.db"
    await fill(url)
    await back_up(url, tmp_path / "backup")
    with zipfile.ZipFile(tmp_path / "backup") as archive, zipfile.ZipFile(tmp_path / "later", "w") as later:
        for name in archive.namelist():
            later.writestr(name, archive.read(name).replace(schema.newest().encode(), b"9999"))
    with pytest.raises(BackupError, match=rf"revision {schema.newest()} at most, found 9999"):
        await restore(url, tmp_path / "later", replace=True, group_size=1, now=9.0, is_of=is_of)


async def test_a_backup_is_never_written_over_and_needs_a_store(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/a.db"
    with pytest.raises(ConfigError, match="expected a store, found no file"):
        await back_up(url, tmp_path / "backup")
    assert not (tmp_path / "a.db").exists()
    await fill(url)
    with pytest.raises(BackupError, match="expected a file that can be written"):
        await back_up(url, tmp_path / "nowhere" / "backup")
    await back_up(url, tmp_path / "backup")
    with pytest.raises(BackupError, match="never written over"):
        await back_up(url, tmp_path / "backup")
    with opened(tmp_path / "backup") as backup:
        backup.check()
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    await engine.dispose()
    for attempt in (
        back_up(url, tmp_path / "of-a-later"),
        restore(url, tmp_path / "backup", replace=True, group_size=1, now=9.0, is_of=is_of),
    ):
        with pytest.raises(StoreAway, match="later release"):
            await attempt
    assert not (tmp_path / "of-a-later").exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]


async def test_a_backup_holds_a_hundred_rows_at_a_time(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/a.db")
    await database.open()
    async with database.write() as session:
        rows = [(number, 1, 1, os.urandom(20_000)) for number in range(1000)]
        await insert_rows(session, CapturedRow, ("id", "owner", "exchanges", "packed"), rows)
        del rows
    await database.close()
    tracemalloc.start()
    try:
        await back_up(f"sqlite+aiosqlite:///{tmp_path}/a.db", tmp_path / "backup")
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 20_000_000, "copies of a hundred are less than all of them once"


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_of_two_backups_to_one_name_at_a_time_the_first_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    path = tmp_path / "backup"
    manifest = Manifest(slipstream="0", revision="1", made_at=datetime.now(UTC))
    with pytest.raises(BackupError, match="never written over"), written(path) as second:  # noqa: PT012
        with second.table("tasks", ["id"]) as tasks:
            tasks.write([["second"]])
        with written(path) as first:
            with first.table("tasks", ["id"]) as tasks:
                tasks.write([["first" * 10_000]])
            first.end(manifest)
        assert path.stat().st_mode & 0o777 == 0o600
        second.end(manifest)
    with opened(path) as backup:
        assert list(backup.rows("tasks")) == [[["first" * 10_000]]]
    assert list(tmp_path.iterdir()) == [path]
