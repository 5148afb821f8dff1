"""SQLite as the store: how its connections are made, and statements that take one turn on their thread each."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiosqlite
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_WRITES = "slipstream_writes"
"""The execution option of connections that write."""

BUSY_TIMEOUT_MS = 30_000
"""Milliseconds to wait for a writer of another process (a backup, a shell)."""

_PREPARED = 0
"""Statements that a connection keeps ready. Each would hold what it was last given, whole bodies among it: with the
driver's own 128 on each of five connections SQLite held 23 MiB after four minutes of load, and more with each."""

_ROWS_AT_ONCE = 1000
"""Rows that come with their statement, but for streams. More are read by who asks for them."""


def engines(url: URL) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
    """An engine for reading and one for writing, alone or not, on the same connections."""
    # hide_parameters: an error's text goes to the log, and the parameters are bodies, comments and metadata
    arguments = {"cached_statements": _PREPARED, "async_creator_fn": _connect}
    engine = create_async_engine(url, hide_parameters=True, connect_args=arguments)
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    event.listen(engine.sync_engine, "invalidate", _end)
    writer = engine.execution_options(**{_WRITES: True})
    return engine, writer, writer


def stream_by_few(connection: Connection) -> None:
    """Have streams on this connection hold no more rows than they take at once (`yield_per`)."""
    event.listen(connection, "before_cursor_execute", _take_few)


def _take_few(connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
    if cursor.server_side:  # of a stream
        cursor.arraysize = context.execution_options.get("yield_per", _ROWS_AT_ONCE)


async def _connect(database: str, **arguments: Any) -> _Connection:
    connection = _Connection(partial(sqlite3.connect, database, **arguments), _ROWS_AT_ONCE)
    await connection
    return connection


class _Connection(aiosqlite.Connection):
    """A connection with cursors of our own."""

    def __init__(self, connector: Callable[[], sqlite3.Connection], iter_chunk_size: int) -> None:
        super().__init__(connector, iter_chunk_size)
        self._thread.daemon = True  # as SQLAlchemy sets it where it makes the connection

    def cursor(self) -> _Cursor:  # type: ignore[override]
        return _Cursor(self._conn, self._execute)


class _Cursor:
    """A cursor as SQLAlchemy uses it: a statement and its rows are one turn on the connection's thread.

    With aiosqlite's they are four, for the cursor, the statement, the rows and the end. Each turn wakes up two threads,
    which takes longer than most of what the store asks for.
    """

    arraysize = _ROWS_AT_ONCE

    def __init__(self, connection: sqlite3.Connection, turn: Callable[..., Awaitable[Any]]) -> None:
        self._connection = connection
        self._turn = turn
        self._more: sqlite3.Cursor | None = None
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> _Cursor:
        return self

    async def execute(self, statement: str, parameters: Any = ()) -> _Cursor:
        """Run a statement, and take its first rows, which nearly always are all."""
        await self._turn(self._run, self._connection.execute, statement, parameters)
        return self

    async def executemany(self, statement: str, parameters: Any) -> _Cursor:
        """Run a statement with each of these."""
        await self._turn(self._run, self._connection.executemany, statement, parameters)
        return self

    def _run(self, execute: Callable[[str, Any], sqlite3.Cursor], statement: str, parameters: Any) -> None:
        cursor = execute(statement, parameters)
        self._rows = cursor.fetchmany(self.arraysize)
        self.description, self.rowcount, self.lastrowid = cursor.description, cursor.rowcount, cursor.lastrowid
        if len(self._rows) < self.arraysize:
            cursor.close()
        else:
            self._more = cursor

    async def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        rows, self._rows = self._rows, []
        return rows if self._more is None else [*rows, *await self._turn(self._more.fetchall)]

    async def fetchmany(self, size: int = arraysize) -> list[Any]:
        """Return so many of the rows that are left."""
        if len(self._rows) < size and self._more is not None:
            self._rows += await self._turn(self._more.fetchmany, size - len(self._rows))
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    async def close(self) -> None:
        """End a statement that has rows left."""
        if self._more is not None:
            await self._turn(self._more.close)


def _prepare(connection: Any, record: object) -> None:
    connection.isolation_level = None  # `_begin` begins the transactions
    cursor = connection.cursor()
    pragmas = (
        "page_size=16384",  # of a new file; what is captured is written with less than half the work
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",  # what is deleted is overwritten: a microsecond for each call that is captured
        f"busy_timeout={BUSY_TIMEOUT_MS}",
    )
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Begin a transaction where it begins: the driver would only do so at the first INSERT, UPDATE or DELETE, so that
    a kill amid the first start left half a schema, and a reader saw two states of the store."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _end(connection: Any, record: object, reason: object) -> None:
    """End the transaction of a task that was cancelled, before its connection is closed. SQLite leaves a connection
    open behind its close for as long as a statement of it is not finished, and the statement that was broken off is
    held by the traceback of the cancellation: the store stayed locked until somebody collected that garbage."""
    with contextlib.suppress(Exception, asyncio.CancelledError):  # it is closed then, whatever became of this
        connection.rollback()
