"""The connection to the store: its transactions are whole, and its errors hold no data."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import sqlite3
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from slipstream.errors import ConfigError
from slipstream.store.database import Database

KILLED_AMID_THE_FIRST_START = """
import asyncio, os, sys
from sqlalchemy import event
from slipstream.store.database import Database

database = Database(sys.argv[1])
left = int(sys.argv[2])

@event.listens_for(database._engine.sync_engine, "after_cursor_execute")
def count(*executed):
    global left
    left -= 1
    if not left:
        os._exit(9)

asyncio.run(database.open())
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("statements", [8, 20, 30])
async def test_a_kill_amid_the_first_start_leaves_a_store_that_opens(tmp_path: Path, statements: int) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/slipstream.db"
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED_AMID_THE_FIRST_START, url, str(statements)
    )
    assert await killed.wait() == 9
    database = Database(url)
    await database.open()
    async with database.read() as session:
        assert await session.scalar(text("SELECT count(*) FROM feedback_targets")) == 0
    await database.close()


async def test_what_was_written_is_not_held(tmp_path: Path) -> None:
    sqlite = ctypes.CDLL(sys.modules["_sqlite3"].__file__)  # and through it SQLite, which counts all its memory
    sqlite.sqlite3_memory_used.restype = ctypes.c_int64
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    before = sqlite.sqlite3_memory_used()
    for number in range(8):
        insert = text(f"INSERT INTO feedback (id, created_at, comment) VALUES ('{number}', 1.0, :comment)")
        async with database.write() as writer:
            await writer.execute(insert, {"comment": "x" * 2**22})
    assert sqlite.sqlite3_memory_used() - before < 2**22
    await database.close()


async def test_a_reader_sees_one_state_of_the_store(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    count = text("SELECT count(*) FROM feedback")
    async with database.read() as reader:
        assert await reader.scalar(count) == 0
        async with database.write() as writer:
            await writer.execute(text("INSERT INTO feedback (id, created_at) VALUES ('f', 1.0)"))
        assert await reader.scalar(count) == 0
    async with database.read() as reader:
        assert await reader.scalar(count) == 1
    await database.close()


async def test_the_text_of_an_error_holds_nothing_of_what_was_to_be_stored(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    insert = text("INSERT INTO feedback (id, comment) VALUES ('f', :comment)")
    with pytest.raises(IntegrityError) as raised:
        async with database.write() as session:
            await session.execute(insert, {"comment": "between us"})
    assert "between us" not in str(raised.value)
    await database.close()


async def test_a_new_file_is_for_the_sidecars_user_alone(tmp_path: Path) -> None:
    """The log beside it too, which holds the same pages."""
    before = os.umask(0o022)
    try:
        database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
        await database.open()
        modes = {name: os.stat(tmp_path / name).st_mode & 0o777 for name in os.listdir(tmp_path)}
        await database.close()
    finally:
        os.umask(before)
    del modes["slipstream.db.lock"]  # which holds nothing
    assert modes == {"slipstream.db": 0o600, "slipstream.db-wal": 0o600, "slipstream.db-shm": 0o600}


@pytest.mark.parametrize(
    "name",
    ["store.db", "linked.db", "twice.db", "folder/store.db", "folder/linked.db"],
)
async def test_a_store_is_of_one_sidecar_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    """Behind a lock of its own, each would run the other's work again."""
    (tmp_path / "linked.db").symlink_to("store.db")
    (tmp_path / "twice.db").symlink_to(tmp_path / "linked.db")
    (tmp_path / "folder").symlink_to(".")
    for first, second in ((name, "store.db"), ("store.db", name)):  # the links lead nowhere, at first
        owner, other = (Database(f"sqlite+aiosqlite:///{tmp_path}/{each}") for each in (first, second))
        await owner.open()
        with pytest.raises(
            ConfigError, match=r"^store\.url: expected a store of this sidecar alone, found .*store\.db"
        ):
            await other.open()
        await owner.close()
        await other.open()
        await other.close()


async def test_a_store_with_a_hard_link_is_refused(tmp_path: Path) -> None:
    """SQLite has a log for each name, so what was acknowledged under the one is missing under the other."""
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/store.db")
    await database.open()
    os.link(tmp_path / "store.db", tmp_path / "hard.db")
    for number in range(2):
        other = Database(f"sqlite+aiosqlite:///{tmp_path}/hard.db")
        with pytest.raises(
            ConfigError, match=r"^store\.url: expected a file with one name, found .* with 2 hard links"
        ):
            await other.open()
        if not number:
            await database.close()  # and it stays refused
    os.unlink(tmp_path / "hard.db")
    await database.open()
    await database.close()


@pytest.mark.parametrize("again", [False, True], ids=["once", "and again while it ends"])
async def test_a_write_that_is_cancelled_amid_a_question_lets_go_of_the_store(tmp_path: Path, again: bool) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> int:
        begun.set()
        return int(go_on.wait(10))

    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()

    async def write() -> None:
        async with database.write() as session:
            connection = await session.connection()
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            await driver.create_function("wait", 0, wait)
            await session.execute(text("CREATE TABLE cancelled (id INTEGER)"))
            await session.execute(text("SELECT wait() UNION ALL SELECT 2"))

    writing = asyncio.create_task(write())
    await asyncio.to_thread(begun.wait, 10)
    writing.cancel()
    if again:
        await asyncio.sleep(0)
        writing.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError) as held:  # as a log or a debugger holds it, with its traceback
        await writing
    await database.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "slipstream.db", timeout=2)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'cancelled'").fetchone() == (0,)
    assert held.value is not None


async def test_a_disk_that_is_full_when_the_log_is_emptied_is_a_store_that_does_not_answer(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    async with database.write() as session:
        await session.execute(text("CREATE TABLE large AS SELECT zeroblob(1000000) AS held"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # what a full disk does to a file that grows
    try:
        with pytest.raises(OperationalError):
            await database.scrub()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert await database.scrub()
    await database.close()


def test_a_missing_driver_is_said_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"the package asyncpg, .*the extra \[postgres\].* EXTRAS=postgres"):
        Database("postgresql+asyncpg://slipstream@db/slipstream")
