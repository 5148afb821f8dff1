"""SQLite's connections: a statement and its rows take one turn on their thread, and a long result takes several."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from slipstream.store import sqlite
from slipstream.store.database import Database


@pytest.fixture
async def database(database: Database) -> Database:
    """The test's store, with a table of many rows."""
    async with database.write() as session:
        await session.execute(text("CREATE TABLE numbers (number INTEGER PRIMARY KEY, said TEXT)"))
        numbers = [{"number": number, "said": f"é{number}"} for number in range(1, 2501)]
        await session.execute(text("INSERT INTO numbers VALUES (:number, :said)"), numbers)
    return database


@pytest.mark.parametrize("rows", [0, 1, 999, 1000, 1001, 2500])
async def test_a_result_of_any_length_is_whole(database: Database, rows: int) -> None:
    query = text("SELECT number, said FROM numbers WHERE number <= :most ORDER BY number").bindparams(most=rows)
    expected = [(number, f"é{number}") for number in range(1, rows + 1)]
    async with database.read() as session:
        assert [tuple(row) for row in await session.execute(query)] == expected
        streamed = await session.stream(query, execution_options={"yield_per": 300})
        parts = [part async for part in streamed.partitions(300)]
        assert [tuple(row) for part in parts for row in part] == expected
        assert len(parts) == -(-rows // 300)
        assert (await session.execute(query)).first() == (expected[0] if rows else None)


async def test_changes_are_counted_and_given_back(database: Database) -> None:
    async with database.write() as session:
        changed: Any = await session.execute(text("UPDATE numbers SET said = '' WHERE number > 2000"))
        assert changed.rowcount == 500
        gone = await session.execute(text("DELETE FROM numbers WHERE number <= 1200 RETURNING number"))
        assert sorted(gone.scalars()) == list(range(1, 1201))
        added: Any = await session.execute(text("INSERT INTO numbers (said) VALUES ('a')"))
        assert added.lastrowid == 2501


async def test_a_statement_takes_one_turn(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    turn = sqlite._Connection._execute

    async def counted(self: Any, work: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal turns
        turns += 1
        return await turn(self, work, *arguments, **named)

    async with database.read() as session:
        await session.execute(text("SELECT 1"))
        monkeypatch.setattr(sqlite._Connection, "_execute", counted)
        await session.execute(text("SELECT number FROM numbers LIMIT 900"))
        assert turns == 1


async def test_a_statement_that_fails_says_why_and_the_next_one_works(database: Database) -> None:
    async with database.read() as session:
        with pytest.raises(Exception, match="no such table"):
            await session.execute(text("SELECT * FROM others"))
        assert await session.scalar(text("SELECT count(*) FROM numbers")) == 2500
