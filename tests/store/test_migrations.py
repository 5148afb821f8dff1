"""A store of an earlier revision is brought to the newest, with what it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import pytest
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from stores import ON_BOTH_STORES

import slipstream.store
from slipstream import __version__
from slipstream.errors import StoreAway
from slipstream.store import (
    feedback,
    feedback_views,
    preferences,
    replays,
    rollout_units,
    rollouts,
    runs,
    schema,
    serving,
    version_views,
    versions,
)
from slipstream.store.audit import Author
from slipstream.store.commits import delivered_experiences
from slipstream.store.database import Database
from slipstream.store.preferences import NewPair, PairKind
from slipstream.store.rollout_units import OF_ROLLOUTS
from slipstream.store.states import VersionState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.facade import FacadeAnswerRow
from slipstream.store.tables.runs import GroupRow
from slipstream.store.versions import Found
from slipstream.tenants import DEFAULT, qualified

_TASK = (
    "INSERT INTO tasks (id, session_id, state, revision, marked, labels, meta, decided, selected, created_at, "
    "updated_at) VALUES ('t', 's', 'complete', 1, false, '[]', '{}', true, true, 1.0, 1.0)"
)
COMMITS = (("delivered", 30, 10.0), ("lost", 0, 20.0), ("delivered", 12, 30.0), ("sending", 5, None))


@pytest.fixture(scope="session")
def new_postgres(empty_postgres: Callable[[], str]) -> Callable[[], str]:
    """What makes a database without tables: these tests make those of before."""
    return empty_postgres


def _bring_to(connection: Connection, revision: str, by: Callable[..., None] = alembic.command.upgrade) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(slipstream.store.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    by(config, revision)


@asynccontextmanager
async def _of_before(
    store_url: str, revision: str, *statements: str, values: Any = None
) -> AsyncIterator[tuple[Database, AsyncEngine]]:
    """A store of a revision in which these statements wrote, opened by this release."""
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.run_sync(_bring_to, revision)
        for statement in statements:
            await connection.execute(text(statement), values)
    await engine.dispose()
    database = Database(store_url)
    await database.open()
    yield database, engine
    await engine.dispose()


@ON_BOTH_STORES
async def test_the_total_delivered_is_what_the_commits_of_before_add_up_to(store_url: str) -> None:
    statement = (
        "INSERT INTO commits (state, trigger, groups, experiences, explorer_ready, explorer_total, "
        "explorer_step, started_at, ended_at) VALUES (:state, 'interval', 1, :experiences, 0, 0, 0, 1.0, :ended)"
    )
    commits = [{"state": state, "experiences": experiences, "ended": ended} for state, experiences, ended in COMMITS]
    async with _of_before(store_url, "0002", statement, values=commits) as (database, _):
        async with database.read() as session:
            assert await delivered_experiences(session) == 42
            assert await delivered_experiences(session, before=30.0) == 30
            assert await delivered_experiences(session, before=10.0) == 0
        await database.close()


@ON_BOTH_STORES
async def test_groups_and_runs_of_before_there_were_replays_stay(store_url: str) -> None:
    statements = (
        _TASK,
        "INSERT INTO calls (id, task_id, position, request, answer, latency, started_at) "
        "VALUES (1, 't', 0, '', '', 1.0, 1.0)",
        "INSERT INTO groups (id, task_id, call_id, generation, state, updated_at) "
        "VALUES ('t.0', 't', 1, 0, 'running', 1.0)",
        "INSERT INTO runs (group_id, run_id, state, attempts, revision, due_at, updated_at) "
        "VALUES ('t.0', 0, 'pending', 0, 0, 1.0, 1.0)",
    )
    async with _of_before(store_url, "0004", *statements) as (database, engine):
        async with database.write() as session:
            assert [run.group_id for run in await runs.claim(session, 0, 9, now=2.0)] == ["t.0"]
            await replays.open_runs(session, "t", 1, 2.0, state="open", by_client=True, due_at=3.0)
        async with database.read() as session:
            kinds = select(GroupRow.id, GroupRow.kind, GroupRow.call_id).order_by(GroupRow.id)
            assert (await session.execute(kinds)).all() == [
                ("t.0", "shadow_call", 1),
                ("t.replay", "agent_replay", None),
            ]
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0004", alembic.command.downgrade)
            assert (await connection.execute(text("SELECT id FROM groups"))).all() == [("t.0",)]
            with pytest.raises(IntegrityError):
                await connection.execute(text("UPDATE groups SET call_id = NULL"))


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_the_number_of_a_deleted_run_goes_to_no_other_in_a_store_of_before_too(store_url: str) -> None:
    statements = (
        _TASK,
        "INSERT INTO groups (id, task_id, kind, by_client, generation, state, updated_at) "
        "VALUES ('t.0', 't', 'agent_replay', false, 0, 'running', 1.0)",
        "INSERT INTO runs (group_id, run_id, state, attempts, revision, due_at, updated_at) "
        "VALUES ('t.0', 0, 'open', 0, 0, 1.0, 1.0)",
        "INSERT INTO run_calls (run_pk, msg_id, choices, request, answer, latency, started_at) "
        "SELECT id, 'm', 1, '', '', 1.0, 1.0 FROM runs",
    )
    async with _of_before(store_url, "0011", *statements) as (database, engine):
        async with database.write() as session:
            assert (await session.execute(text("SELECT run_pk FROM run_calls"))).all() == [(1,)], "what it has stays"
            await session.execute(text("DELETE FROM runs"))
            await session.execute(text(statements[2]))
            assert (await session.execute(text("SELECT id FROM runs"))).all() == [(2,)]
            if not database.shared:
                assert (await session.execute(text("PRAGMA integrity_check"))).all() == [("ok",)]
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0011", alembic.command.downgrade)
            assert (await connection.execute(text("SELECT id FROM runs"))).all() == [(2,)]


@ON_BOTH_STORES
async def test_replays_of_before_stay_beside_those_whose_parts_are_stored_once(store_url: str) -> None:
    def replay(group_id: str) -> tuple[str, ...]:
        return (
            "INSERT INTO groups (id, task_id, kind, by_client, generation, state, updated_at) "
            f"VALUES ('{group_id}', 't', 'agent_replay', true, 0, 'running', 1.0)",
            "INSERT INTO runs (group_id, run_id, state, attempts, revision, due_at, updated_at) "
            f"VALUES ('{group_id}', 0, 'open', 0, 0, 1.0, 1.0)",
            "INSERT INTO run_calls (run_pk, msg_id, choices, request, answer, latency, started_at) "
            f"SELECT id, '{group_id}', 1, '', '', 1.0, 1.0 FROM runs WHERE group_id = '{group_id}'",
        )

    async with _of_before(store_url, "0017", _TASK, *replay("old")) as (database, engine):
        async with database.write() as session:
            for statement in replay("new"):
                await session.execute(text(statement))
            await session.execute(text("INSERT INTO segments (id, body) VALUES (1, '')"))
            await session.execute(text("UPDATE run_calls SET segment_id = 1 WHERE msg_id = 'new'"))
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0017", alembic.command.downgrade)
            assert (await connection.execute(text("SELECT id FROM groups"))).all() == [("old",)]
            assert (await connection.execute(text("SELECT msg_id FROM run_calls"))).all() == [("old",)]


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_versions_of_before_are_seen_and_a_release_of_before_knows_the_served_ones(store_url: str) -> None:
    statement = "INSERT INTO versions (version, seen_at, last_commit_id, experiences) VALUES (3, 5.0, NULL, 7)"
    async with _of_before(store_url, "0018", statement) as (database, engine):
        async with database.write() as session:
            assert await versions.record_version(session, 4, 6.0) == 3
            await versions.record_found(session, Found(5, "/job/global_step_5", 7.0, None), 7.0)
            assert await versions.count(session) == {**dict.fromkeys(VersionState, 0), VersionState.SEEN: 3}
        async with database.read() as session:
            found, _ = await version_views.page(session, 9)
            assert [(one["version"], one["found_at"], one["served_at"], one["parent"]) for one in found] == [
                (5, 7.0, None, 4),
                (4, 6.0, 6.0, 3),
                (3, 5.0, 5.0, None),
            ]
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0018", alembic.command.downgrade)
            kept = await connection.execute(text("SELECT version, seen_at, experiences FROM versions ORDER BY version"))
            assert kept.all() == [(3, 5.0, 7), (4, 6.0, 0)]


@ON_BOTH_STORES
async def test_a_store_that_a_later_release_has_changed_is_left_as_it_is(store_url: str) -> None:
    database, engine = Database(store_url), create_async_engine(store_url)
    await database.open()
    await database.close()
    async with engine.begin() as connection:
        known = await connection.scalar(text("SELECT version_num FROM alembic_version"))
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    both = f"revision {schema.newest()} at most, which slipstream {__version__} knows; found 9999\\. Start that"
    with pytest.raises(StoreAway, match=both):
        await database.open()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :known"), {"known": known})
    await engine.dispose()
    await database.open()
    await database.close()


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_what_was_stored_before_there_were_tenants_is_the_default_ones(store_url: str) -> None:
    statements = (
        _TASK,
        "INSERT INTO calls (id, task_id, position, msg_id, request, answer, latency, started_at) "
        "VALUES (1, 't', 0, 'm', '', '', 1.0, 1.0)",
        "INSERT INTO facade_answers (msg_id, choices, created_at) VALUES ('f', 1, 1.0)",
    )
    async with _of_before(store_url, "0012", *statements) as (database, engine):
        said = feedback.NewFeedback("f", "session_id", (qualified(DEFAULT, "s"),), 1.0)
        longest = qualified("a" * 64, "t" * 64)
        async with database.write() as session:
            assert not await feedback.add(session, said, 2.0)
            session.add(TaskRow(id=longest, session_id=longest, tenant="a" * 64, created_at=2.0, updated_at=2.0))
            session.add(FacadeAnswerRow(msg_id="g", choices=1, created_at=2.0))
        async with database.read() as session:
            receipt = await feedback_views.receipt(session, "f", DEFAULT)
            assert receipt is not None
            assert receipt["targets"] == [
                {"task_id": "t", "session_id": "s", "state": "matched", "matched_to": "production"}
            ]
            assert await feedback_views.receipt(session, "f", "acme") is None
            assert set(await session.scalars(select(FacadeAnswerRow.tenant))) == {DEFAULT}
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0012", alembic.command.downgrade)
            kept = await connection.execute(text("SELECT id FROM tasks ORDER BY created_at"))
            assert kept.all() == [("t",), (longest,)]


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_calls_of_before_a_version_could_answer_are_productions(store_url: str) -> None:
    def call(task_id: str, variant: str = "") -> tuple[str, ...]:
        task = _TASK.replace("'t', 's'", f"'{task_id}', 's'")
        columns, value = (", variant", f", '{variant}'") if variant else ("", "")
        return task, (
            f"INSERT INTO calls (task_id, position, request, answer, latency, started_at{columns}) "
            f"VALUES ('{task_id}', 0, '', '', 1.0, 1.0{value})"
        )

    async with _of_before(store_url, "0018", *call("old")) as (database, engine):
        async with database.write() as session:
            assert (await serving.current(session)).version is None
            for statement in (*call("new", "production"), *call("lane", "version:8")):
                await session.execute(text(statement))
            await serving.serve(session, 8, 0.5, None, 1.0)
            rows = await session.execute(text("SELECT task_id, variant, arm FROM calls ORDER BY id"))
            assert rows.all() == [("old", None, None), ("new", "production", None), ("lane", "version:8", None)]
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0018", alembic.command.downgrade)
            kept = await connection.execute(text("SELECT task_id FROM calls ORDER BY id"))
            assert kept.all() == [("old",), ("new",)], (
                "an earlier release would take a version's answer for production's"
            )
            tasks = await connection.execute(text("SELECT id FROM tasks ORDER BY id"))
            assert tasks.all() == [("new",), ("old",)]


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_units_of_before_there_were_rollouts_stay(store_url: str) -> None:
    unit = (
        "INSERT INTO units (version, unit, arm, epoch, first_at, last_at, calls, failures, fallbacks, slowest) "
        "VALUES (8, 'u', 'control', 1, 1.0, 2.0, 3, 1, 0, 0.5)"
    )
    async with _of_before(store_url, "0019", unit) as (database, engine):
        async with database.write() as session:
            [found] = await rollout_units.uncounted(session, OF_ROLLOUTS, 1, 8, 0.0, 9.0, 10)
            assert (found.unit, found.treated, found.failures) == ("u", False, 1)
            opened = await rollouts.open_(session, 8, {}, 0.01, Author(None, None), 1.0)
            values = rollout_units.UnitValues(1.0, 0.0, None, None, 0.5, None)
            assert await rollout_units.count(session, OF_ROLLOUTS, opened.id, [(found, values._asdict())])
        await database.close()
        for _ in range(2):
            async with engine.begin() as connection:
                await connection.run_sync(_bring_to, "0019", alembic.command.downgrade)
                assert (await connection.execute(text("SELECT unit FROM units"))).all() == [("u",)]
            await database.open()
            async with database.read() as session:
                assert await rollouts.current(session) is None
            await database.close()


@pytest.mark.sampled(1)
@ON_BOTH_STORES
async def test_a_store_of_before_there_were_preferences_keeps_all_and_goes_back(store_url: str) -> None:
    statements = (
        _TASK,
        "INSERT INTO calls (id, task_id, position, request, answer, latency, started_at, variant) "
        "VALUES (1, 't', 0, '', '', 1.0, 1.0, 'version:8')",
        "INSERT INTO live_scores (call_id, value, breakdown, scored_at) VALUES (1, 0.5, '{}', 1.0)",
    )
    kept = "SELECT t.id, c.variant, l.value FROM tasks t JOIN calls c ON c.task_id = t.id JOIN live_scores l ON true"
    async with _of_before(store_url, "0021", *statements) as (database, engine):
        async with database.write() as session:
            new = NewPair("p", PairKind.PRODUCTION, DEFAULT, "t", "s", "t.0", 1, None, 2, "production", "policy", False)
            await preferences.add(session, new, 2.0)
            assert (await session.execute(text("SELECT count(*) FROM preference_pairs"))).scalar() == 0, "no such run"
            assert (await session.execute(text(kept))).all() == [("t", "version:8", 0.5)]
        await database.close()
        async with engine.begin() as connection:
            await connection.run_sync(_bring_to, "0021", alembic.command.downgrade)
            assert (await connection.execute(text(kept))).all() == [("t", "version:8", 0.5)]
