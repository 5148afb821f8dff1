"""PostgreSQL as the store: of several sidecars, taking any text, and quiet about what it holds."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from loops import RunLoop
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess, acknowledged
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError
from stores import ON_BOTH_STORES

from slipstream.errors import ConfigError, StoreAway
from slipstream.store import postgres
from slipstream.store.database import Database

_END_CONNECTIONS = text(
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid != pg_backend_pid()"
)
_INSERT = text("INSERT INTO feedback (id, created_at) VALUES (:id, 1.0)")


async def test_sidecars_that_start_together_make_one_schema(empty_postgres: Callable[[], str]) -> None:
    url = empty_postgres()
    databases = [Database(url) for _ in range(4)]
    await asyncio.gather(*(database.open() for database in databases))
    for database in databases:
        async with database.read() as session:
            assert await session.scalar(text("SELECT count(*) FROM feedback")) == 0
        await database.close()


@pytest.mark.slow
async def test_a_sidecar_that_was_killed_starts_again_with_what_it_had(
    new_postgres: Callable[[], str], tmp_path: Path
) -> None:
    async with serving(production_app()) as production_url, serving(ScriptedExplorer().app()) as explorer_url:
        sidecar = SidecarProcess(tmp_path, production_url, explorer_url, store={"url": new_postgres()})
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=30) as client:
            await sidecar.start()
            said = await acknowledged(client, "/feedback", {"task_id": "t", "thumbs": "up"})
            await sidecar.end(signal.SIGKILL)
            await sidecar.start()
            assert (await client.get(f"/feedback/{said['id']}")).status_code == 200
        await sidecar.end(signal.SIGTERM)


async def test_a_sidecar_whose_connection_is_cut_goes_on(new_postgres: Callable[[], str]) -> None:
    url = new_postgres()
    database, other = Database(url), Database(url)
    await database.open()
    async with other.read() as session:
        await session.execute(_END_CONNECTIONS)
    with pytest.raises(OperationalError):
        async with database.write() as session:
            await session.execute(_INSERT, {"id": "lost"})
    async with database.write() as session:
        await session.execute(_INSERT, {"id": "kept"})
    async with database.read() as session:
        assert (await session.scalars(text("SELECT id FROM feedback"))).all() == ["kept"]
    await database.close()
    await other.close()


@pytest.mark.slow
async def test_who_waits_too_long_for_another_sidecar_is_told_so_and_may_try_again(
    new_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(postgres._WRITERS, "lock_timeout", "100ms")
    url = new_postgres()
    first, second = Database(url), Database(url)
    await first.open()
    await second.open()
    async with first.write() as writing:
        await writing.execute(_INSERT, {"id": "first"})
        with pytest.raises(OperationalError):
            async with second.write() as session:
                await session.execute(_INSERT, {"id": "too late"})
        async with second.write(alone=False) as session:
            await session.execute(_INSERT, {"id": "beside"})
    async with second.write() as session:
        assert set(await session.scalars(text("SELECT id FROM feedback"))) == {"first", "beside"}
    await first.close()
    await second.close()


@pytest.mark.slow
async def test_a_sidecar_that_stops_amid_a_transaction_holds_the_others_for_a_moment_only(
    new_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_postgres()
    first = Database(url)
    await first.open()
    await first.close()
    stopped, other = Database(url), Database(url)
    async with AsyncExitStack() as stack:
        with monkeypatch.context() as short:  # for this one alone, and long enough for a busy machine to take a breath
            short.setitem(postgres._WRITERS, "idle_in_transaction_session_timeout", "2s")
            session = await stack.enter_async_context(stopped.write())
        await session.execute(_INSERT, {"id": "of the one that stopped"})
        async with other.write() as others:
            assert (await others.scalars(text("SELECT id FROM feedback"))).all() == []
            await others.execute(_INSERT, {"id": "of the other"})
        with pytest.raises(OperationalError):
            await stack.aclose()
    async with stopped.write() as session:
        assert (await session.scalars(text("SELECT id FROM feedback"))).all() == ["of the other"]
    await stopped.close()
    await other.close()


@pytest.mark.slow
async def test_a_sidecar_that_stops_amid_several_transactions_holds_the_others_for_as_long_as_all_of_them(
    new_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for a row of the one before it, and is idle only once that one has been ended."""
    url = new_postgres()
    first = Database(url)
    await first.open()
    await first.close()
    monkeypatch.setitem(postgres._WRITERS, "idle_in_transaction_session_timeout", "1s")
    monkeypatch.setitem(postgres._WRITERS, "lock_timeout", f"{postgres._LOCK_TIMEOUT / postgres._IDLE_TIMEOUT}s")
    stopped, other = Database(url), Database(url)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(stopped.write(alone=False))
        two = await stack.enter_async_context(stopped.write(alone=False))
        alone = await stack.enter_async_context(stopped.write())
        await one.execute(_INSERT, {"id": "of one"})
        await two.execute(_INSERT, {"id": "of two"})
        await alone.connection()
        waiting = [
            asyncio.create_task(two.execute(_INSERT, {"id": "of one"})),
            asyncio.create_task(alone.execute(_INSERT, {"id": "of two"})),
        ]
        async with other.write() as others:
            await others.execute(_INSERT, {"id": "of the other"})
        await asyncio.gather(*waiting)
        with pytest.raises(OperationalError):
            await stack.aclose()
    async with other.read() as session:
        assert (await session.scalars(text("SELECT id FROM feedback"))).all() == ["of the other"]
    await stopped.close()
    await other.close()


async def test_a_server_that_is_not_there_may_come_back() -> None:
    for url, reason in (
        ("postgresql+asyncpg://somebody:secret@127.0.0.1:1/slipstream", "Connect call failed"),
        ("postgresql+asyncpg://somebody:secret@no.such.host.invalid/slipstream", "not known"),
    ):
        with pytest.raises(StoreAway, match=reason) as raised:
            await Database(url).open()
        assert "secret" not in str(raised.value)


async def test_a_database_that_does_not_exist_is_told_by_name(new_postgres: Callable[[], str]) -> None:
    url = new_postgres().replace("/store_", "/no_store_").replace("postgres:@", "postgres:secret@")
    with pytest.raises(ConfigError, match="does not exist") as raised:
        await Database(url).open()
    assert str(raised.value).startswith("store.url: expected a store that can be opened and written, found")
    assert "secret" not in str(raised.value)


async def test_no_error_holds_anything_of_what_was_to_be_stored(new_postgres: Callable[[], str]) -> None:
    database = Database(new_postgres())
    await database.open()
    for statement in (
        "INSERT INTO feedback (id, comment) VALUES ('f', :comment)",
        "INSERT INTO feedback (id, created_at, rating) VALUES (:comment, 1.0, CAST(CAST(:comment AS text) AS integer))",
        "INSERT INTO feedback (id, created_at, rating) VALUES ('f', 1.0, CAST(:comment AS integer))",
    ):
        with pytest.raises(DBAPIError) as raised:
            async with database.write() as session:
                await session.execute(text(statement), {"comment": "between us"})
        error: BaseException | None = raised.value
        while error is not None:
            assert "between us" not in str(error) + repr(error)
            error = error.__cause__
    await database.close()


@pytest.mark.slow
@ON_BOTH_STORES
async def test_feedback_with_a_character_that_no_text_of_postgresql_holds_is_kept(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await until(lambda: loop.ready(1))
        said = {"task_id": "t", "thumbs": "up", "comment": "cut\0off", "source": "form"}
        response = await loop.client.post("/feedback", json=said)
        assert response.status_code == 202
        receipt = (await loop.client.get(f"/feedback/{response.json()['id']}")).json()
        assert receipt["comment"].replace("\0", "\ufffd") == "cut\ufffdoff"
        assert (await loop.client.get("/feedback/%00")).status_code == 404


@ON_BOTH_STORES
async def test_a_reader_sees_one_state_of_the_store(store_url: str, tmp_path: Path) -> None:
    database = Database(store_url)
    await database.open()
    count = text("SELECT count(*) FROM feedback")
    async with database.read() as reader:
        assert await reader.scalar(count) == 0
        async with database.write() as writer:
            await writer.execute(_INSERT, {"id": "f"})
        assert await reader.scalar(count) == 0
    async with database.read() as reader:
        assert await reader.scalar(count) == 1
    await database.close()


@ON_BOTH_STORES
async def test_writers_wait_for_each_other(store_url: str) -> None:
    databases = [Database(store_url) for _ in range(1 if store_url.startswith("sqlite") else 3)]
    for database in databases:
        await database.open()

    async def add(database: Database) -> None:
        async with database.write() as session:
            number = await session.scalar(text("SELECT count(*) FROM feedback"))
            await session.execute(_INSERT, {"id": f"f{number}"})

    await asyncio.gather(*(add(database) for database in databases for _ in range(20)))
    for database in databases:
        await database.close()
