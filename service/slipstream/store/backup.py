"""A backup of the store, made while a sidecar uses it: all tables as they were at one moment.

It is read in one transaction, which sees one state of the store on SQLite (write-ahead log) and on PostgreSQL
(repeatable read) and which no writer waits for. Rows and not pages are written, so that one format is for both
databases, and PostgreSQL's own programs, which this package does not bring, are not needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Connection, MetaData, Table, Text, TypeDecorator, cast, inspect, select, type_coerce
from sqlalchemy.exc import SAWarning
from sqlalchemy.ext.asyncio import AsyncConnection

from slipstream import __version__
from slipstream.errors import ConfigError
from slipstream.store import numbering, schema
from slipstream.store.backup_file import Manifest, TableWriter, written
from slipstream.store.database import Database
from slipstream.store.tables.base import Base

_AT_ONCE = 100
"""Rows in memory: two bodies of a call can have megabytes."""


class _JsonText(TypeDecorator[str]):
    """PostgreSQL's JSON as the text that it was given."""

    impl = Text
    cache_ok = True

    def bind_expression(self, bindparam: Any) -> Any:
        return cast(type_coerce(bindparam, Text), JSON)

    def column_expression(self, column: Any) -> Any:
        return cast(column, Text)


async def back_up(url: str, path: Path) -> Manifest:
    """Write a backup of a store; sidecars go on meanwhile. What was acknowledged before this began is in it.

    Args:
        url: as `store.url`.

    Raises:
        BackupError: the file is there already, or cannot be written.
        ConfigError, StoreAway: there is no store, it cannot be read, or a later release has changed its tables.
    """
    database = Database(url)
    try:
        with written(path) as backup:
            async with database.snapshot() as connection:
                revision = await connection.run_sync(schema.current)
                if revision is None:
                    raise ConfigError("store.url: expected a store with tables, found an empty database")
                made_at = datetime.now(UTC)
                tables = await connection.run_sync(tables_of)
                for table in tables:
                    with backup.table(table.name, table.columns.keys()) as writer:
                        await _copy(connection, table, writer)
                return backup.end(
                    Manifest(
                        slipstream=__version__,
                        revision=revision,
                        made_at=made_at,
                        keys=await _keys(connection, tables),
                        numbers=await numbering.given(connection, tables),
                    )
                )
    finally:
        await database.close()


def tables_of(connection: Connection) -> Sequence[Table]:
    """Return the store's tables as they are there, each behind those that it refers to. Values are read and written as
    the database has them: what is encrypted stays so, and JSON is text."""
    there = inspect(connection).get_table_names()
    found = MetaData()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Skipped unsupported reflection of expression-based index", SAWarning)
        found.reflect(connection, only=[name for name in there if name in Base.metadata.tables])
    for table in found.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type = Text() if connection.dialect.name == "sqlite" else _JsonText()
    return found.sorted_tables


async def _copy(connection: AsyncConnection, table: Table, writer: TableWriter) -> None:
    query = select(table)
    if any(key.column.table is table for key in table.foreign_keys):  # a row behind the one that it refers to
        query = query.order_by(*table.primary_key)
    rows = await connection.stream(query, execution_options={"yield_per": _AT_ONCE})
    async for some in rows.partitions():
        writer.write([tuple(row) for row in some])


async def _keys(connection: AsyncConnection, tables: Sequence[Table]) -> tuple[str, ...]:
    keys = next((table for table in tables if table.name == "store_keys"), None)
    return () if keys is None else tuple(await connection.scalars(select(keys.c.fingerprint)))
