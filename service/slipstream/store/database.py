"""The connection to the store, and its schema."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import alembic.command
import alembic.config
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from slipstream.errors import ConfigError
from slipstream.store import postgres

_WRITES = "slipstream_writes"
"""The execution option of connections that write."""

_BUSY_TIMEOUT_MS = 30_000
"""How long a writer of another process (a backup, a shell) is waited for."""


class Database:
    """Sessions on the store.

    Writers queue here, in order: SQLite allows one at a time, and what they do is written for a store that nobody else
    changes meanwhile, on PostgreSQL as well. Readers do not wait, and see one state of the store.

    An acknowledged write survives a power cut as well as a kill: `synchronous=FULL`, and PostgreSQL's default.

    Args:
        url: an async SQLAlchemy URL such as `sqlite+aiosqlite:///slipstream.db`.

    Raises:
        ConfigError: the package for that database is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        try:
            self._engine, self._writer = (_sqlite if self._is_sqlite else postgres.engines)(self._url)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"store.url: needs the package {error.name}, which is not installed; the extra [postgres] brings it"
            ) from error
        self._readers = async_sessionmaker(self._engine, expire_on_commit=False)
        self._writers = async_sessionmaker(self._writer, expire_on_commit=False)
        self._writing = asyncio.Lock()
        self._lock: IO[str] | None = None

    @property
    def _is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    async def open(self) -> None:
        """Bring the schema to the newest revision, creating the file's folder and the tables where missing.

        Raises:
            ConfigError: it cannot be opened or written, or another sidecar has it.
        """
        try:
            if self._is_sqlite and self._url.database not in (None, "", ":memory:"):
                path = Path(str(self._url.database))
                self._lock = _claim(path)
                # First without aiosqlite: where a file cannot be opened, its thread may outlive the event loop, and
                # ends with a traceback then.
                sqlite3.connect(path).close()
            async with self._writer.begin() as connection:
                await connection.run_sync(_upgrade)
        except postgres.StoreTaken as error:
            raise _taken(repr(self._url)) from error
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            reason = getattr(error, "orig", None) or error
            raise ConfigError(
                f"store.url: expected a store that can be opened and written, found {self._url!r} ({reason})"
            ) from error

    async def close(self) -> None:
        await self._engine.dispose()
        await self._writer.dispose()
        if self._lock is not None:
            self._lock.close()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """A session for reading."""
        async with self._readers() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """A session in one transaction: committed at the end of the block, rolled back by an exception."""
        async with self._writing, self._writers.begin() as session:
            yield session


def _claim(path: Path) -> IO[str]:
    """Keep a second sidecar off a SQLite store: it would take this one's runs for its own. A kill lets go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(path.name + ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise _taken(str(path)) from None
    return lock


def _taken(store: str) -> ConfigError:
    return ConfigError(f"store.url: expected a store of this sidecar alone, found {store} in use by another")


def _sqlite(url: URL) -> tuple[AsyncEngine, AsyncEngine]:
    """An engine for reading and one for writing, on the same connections."""
    # hide_parameters: an error's text goes to the log, and the parameters are bodies, comments and metadata
    engine = create_async_engine(url, hide_parameters=True)
    event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine, engine.execution_options(**{_WRITES: True})


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # `_begin_sqlite` begins the transactions
    cursor = connection.cursor()
    pragmas = (
        "page_size=16384",  # of a new file; what is captured is written with less than half the work
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=FAST",  # Debian's default is to write zeros over pages that become free: as much work again
        f"busy_timeout={_BUSY_TIMEOUT_MS}",
    )
    for pragma in pragmas:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction where it begins: the driver would only do so at the first INSERT, UPDATE or DELETE, so that
    a kill amid the first start left half a schema, and a reader saw two states of the store."""
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _upgrade(connection: Connection) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")
