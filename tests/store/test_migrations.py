"""A store of an earlier revision is brought to the newest, with what it holds."""

from __future__ import annotations

from pathlib import Path

import alembic.command
import alembic.config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from stores import ON_BOTH_STORES

import slipstream.store
from slipstream.store.commits import delivered_experiences
from slipstream.store.database import Database

COMMITS = (("delivered", 30, 10.0), ("lost", 0, 20.0), ("delivered", 12, 30.0), ("sending", 5, None))


def _bring_to(connection: Connection, revision: str) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(slipstream.store.__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, revision)


@ON_BOTH_STORES
async def test_the_total_delivered_is_what_the_commits_of_before_add_up_to(store_url: str) -> None:
    engine = create_async_engine(store_url)
    async with engine.begin() as connection:
        await connection.run_sync(_bring_to, "0002")
        await connection.execute(
            text(
                "INSERT INTO commits (state, trigger, groups, experiences, explorer_ready, explorer_total, "
                "explorer_step, started_at, ended_at) "
                "VALUES (:state, 'interval', 1, :experiences, 0, 0, 0, 1.0, :ended)"
            ),
            [{"state": state, "experiences": experiences, "ended": ended} for state, experiences, ended in COMMITS],
        )
    await engine.dispose()
    database = Database(store_url)
    await database.open()
    async with database.read() as session:
        assert await delivered_experiences(session) == 42
        assert await delivered_experiences(session, before=30.0) == 30
        assert await delivered_experiences(session, before=10.0) == 0
    await database.close()
