"""Many rows by one statement, at the driver's own speed.

SQLAlchemy writes the SQL, for whichever database; the rows then pass it by. Its own way with many rows takes more
time on each than SQLite takes to store it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import bindparam, insert, update
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.sealed import SealedType, cipher_of
from slipstream.store.tables.base import Base

Columns = tuple[str, ...]
"""In the order of the table."""

Rows = list[tuple[Any, ...]]
"""Values as the driver takes them: what is JSON in the database is text here."""

_Name = TypeVar("_Name")

_AT_ONCE = 500
"""Names in one statement: databases bound its parameters."""


def batches(names: Sequence[_Name]) -> Iterator[Sequence[_Name]]:
    """Names in batches, each as large as one statement may hold."""
    return (names[at : at + _AT_ONCE] for at in range(0, len(names), _AT_ONCE))


async def insert_rows(session: AsyncSession, table: type[Base], columns: Columns, rows: Rows) -> None:
    """Insert rows, in the transaction of the session."""
    if rows:
        connection = await session.connection()
        rows = _sealed(table, columns, connection.dialect, rows)
        await connection.exec_driver_sql(_insert(table, columns, connection.dialect), rows)


async def update_rows(session: AsyncSession, table: type[Base], columns: Columns, rows: Rows) -> None:
    """Set these columns of rows that are there, in the transaction of the session.

    Args:
        rows: the values of the columns and, last, the id of the row.
    """
    if rows:
        connection = await session.connection()
        rows = _sealed(table, columns, connection.dialect, rows)
        await connection.exec_driver_sql(_update(table, columns, connection.dialect), rows)


def _sealed(table: type[Base], columns: Columns, dialect: Dialect, rows: Rows) -> Rows:
    """The rows with their sealed columns encrypted, where the store has a key."""
    if (cipher := cipher_of(dialect)) is None:
        return rows
    types = [table.__table__.c[name].type for name in columns]
    at = [(place, kind.driver_value) for place, kind in enumerate(types) if isinstance(kind, SealedType)]
    if not at:
        return rows
    sealed = []
    for row in map(list, rows):
        for place, seal in at:
            row[place] = seal(cipher, row[place])
        sealed.append(tuple(row))
    return sealed


@lru_cache
def _insert(table: type[Base], columns: Columns, dialect: Dialect) -> str:
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
    return _sql(insert(table).values(values), columns, dialect)


@lru_cache
def _update(table: type[Base], columns: Columns, dialect: Dialect) -> str:
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in columns}
    return _sql(
        update(table).values(values).where(table.__table__.c.id == bindparam("new_id")), (*columns, "id"), dialect
    )


def _sql(statement: Any, columns: Columns, dialect: Dialect) -> str:
    compiled = statement.compile(dialect=dialect)
    wanted = [f"new_{name}" for name in columns]
    if compiled.positiontup != wanted:  # SQLAlchemy sorts them as in the table, and the rows would be mixed up
        raise ValueError(f"expected the columns in the order {compiled.positiontup}; found {wanted}")
    return str(compiled)
