"""The numbers that the database gives to rows: which ones were given, so that none is given again after a restore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Table, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

_SEQUENCE = text("SELECT pg_get_serial_sequence(CAST(:table AS text), CAST(:column AS text))")
_NUMBERED = text("SELECT 1 FROM sqlite_master WHERE name = :table AND sql LIKE '%AUTOINCREMENT%'")


async def given(connection: AsyncConnection, tables: Iterable[Table]) -> dict[str, int]:
    """Return the largest number that was given to a row of each table, also if that row is deleted. Tables whose
    numbers may be given again are left out."""
    found: dict[str, int] = {}
    for table in tables:
        if connection.dialect.name == "sqlite":
            if await connection.scalar(_NUMBERED, {"table": table.name}):
                last = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
                found[table.name] = await connection.scalar(last, {"table": table.name}) or 0
        elif (sequence := await _sequence(connection, table)) is not None:
            last = text(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")  # noqa: S608 - ours
            found[table.name] = await connection.scalar(last) or 0
    return found


async def go_on(connection: AsyncConnection, tables: Iterable[Table], numbers: Mapping[str, int]) -> None:
    """Have the next row of each table get a number above its rows' and above what was given before."""
    for table in tables:
        last = numbers.get(table.name, 0)
        if connection.dialect.name == "sqlite":
            if last and await connection.scalar(_NUMBERED, {"table": table.name}):
                await connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), {"table": table.name})
                row = text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)")
                await connection.execute(row, {"table": table.name, "last": last})
        elif (sequence := await _sequence(connection, table)) is not None:
            [column] = table.primary_key
            last = max(last, await connection.scalar(select(func.max(column))) or 0)
            if last:
                await connection.execute(
                    text("SELECT setval(CAST(:name AS regclass), :last)"), {"name": sequence, "last": last}
                )


async def take(connection: AsyncConnection, table: Table, count: int) -> Sequence[int]:
    """Return numbers for new rows of a table whose numbers are never given again, in a transaction that writes alone
    and inserts the rows. Those that it does not use may be given again."""
    if not count:
        return ()
    if connection.dialect.name == "sqlite":  # which counts a row that is inserted with a number
        last = text("SELECT seq FROM sqlite_sequence WHERE name = :table")
        first = 1 + (await connection.scalar(last, {"table": table.name}) or 0)
        return range(first, first + count)
    sequence = await _sequence(connection, table)
    numbers = text("SELECT nextval(CAST(:name AS regclass)) FROM generate_series(1, :count)")
    return (await connection.scalars(numbers, {"name": sequence, "count": count})).all()


async def _sequence(connection: AsyncConnection, table: Table) -> str | None:
    """The name of the sequence that numbers a table's rows on PostgreSQL."""
    columns = list(table.primary_key)
    if len(columns) != 1:
        return None
    name: str | None = await connection.scalar(_SEQUENCE, {"table": table.name, "column": columns[0].name})
    return name
