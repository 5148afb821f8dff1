"""The connection to the store, and its schema."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import IO, Any

import structlog
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_sessionmaker

from slipstream.errors import ConfigError, StoreAway
from slipstream.store import keys, postgres, schema, sqlite
from slipstream.store.cipher import Cipher
from slipstream.store.claim import claim, sqlite_file
from slipstream.store.sealed import seal_with

_log = structlog.get_logger(__name__)

_SCRUB_TIMEOUT_MS = 2_000
"""Milliseconds to wait for readers before the log is emptied; nobody writes meanwhile."""

_LONGEST_WAIT = 30.0
"""Seconds in the queue of this process' writers. Where the store hangs, who waits longer is told so instead."""

_MOST_WAITING = 2_000
"""Writers in that queue, which is some seconds' work. Where the store is slow, who comes behind them would wait in
vain, and take memory for longer than its own patience lasts."""

_LONGEST_WRITE = 30.0
_LONGEST_READ = 60.0
"""Seconds of one transaction on PostgreSQL, which may be slow, or gone without a word; a writer's time in the queue
counts. Those of ours take milliseconds, and far less than this on a machine that is overloaded."""


class NoStore(ConfigError):
    """There is no store yet at the URL that is configured."""


class Database:
    """Sessions on the store.

    One transaction at a time writes, of all sidecars on a PostgreSQL too: SQLite allows no more, and what writers do is
    written for a store that nobody else changes meanwhile. They queue here, in order, and at PostgreSQL for an advisory
    lock. What touches rows of one's own only may be written beside them (`alone=False`); on SQLite it queues as well.
    Readers do not wait, and see one state of the store.

    An acknowledged write survives a power cut as well as a kill: `synchronous=FULL`, and PostgreSQL's default.

    Args:
        url: an async SQLAlchemy URL such as `sqlite+aiosqlite:///slipstream.db`.
        cipher: encrypts the sealed columns; None leaves them plain.

    Raises:
        ConfigError: the package for that database is not installed.

    Attributes:
        writes: transactions of this process that wrote, or may have written, so far.
        unscrubbed: SQLite's log may hold what was deleted; True at first, because a kill leaves the log as it is.
    """

    def __init__(self, url: str, cipher: Cipher | None = None) -> None:
        self._url = make_url(url)
        try:
            self._engine, self._writer, self._beside = (postgres if self.shared else sqlite).engines(self._url)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"store.url: needs the package {error.name}, which is not installed; the extra [postgres] brings it, "
                "in an image --build-arg EXTRAS=postgres"
            ) from error
        if cipher is not None:
            for engine in (self._engine, self._writer, self._beside):
                seal_with(engine.sync_engine.dialect, cipher)
        self._cipher = cipher
        self._readers = async_sessionmaker(self._engine, expire_on_commit=False)
        self._writers = async_sessionmaker(self._writer, expire_on_commit=False)
        self._writers_beside = async_sessionmaker(self._beside, expire_on_commit=False)
        self._writing = asyncio.Lock()
        self._waiting = 0
        self.writes = 0
        self.unscrubbed = True
        self._lock: IO[str] | None = None

    @property
    def shared(self) -> bool:
        """Return whether other sidecars may use the store too; a SQLite store has one at a time."""
        return self._url.get_backend_name() != "sqlite"

    async def open(self) -> None:
        """Bring the schema to the newest revision, creating the file's folder and the tables where missing.

        Raises:
            ConfigError: it cannot be opened or written, another sidecar has it (SQLite), or it is encrypted with other
                keys.
            StoreAway: it is a server that cannot be reached at the moment, or a later release has changed its tables;
                this may be called again.
        """
        async with self._opening():
            async with self.exclusive() as connection:
                await connection.run_sync(schema.upgrade)
            async with self.write() as session:
                await keys.check(session, self._cipher, time.time())

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[AsyncConnection]:
        """A connection in one transaction, which no other sidecar is beside: for changes of the whole store. A SQLite
        file is made where missing, and stays this process' until `close`.

        Raises:
            ConfigError, StoreAway: as of `open`; the store is closed then.
        """
        async with self._opening():
            if not self.shared and (path := sqlite_file(self._url)) is not None:
                self._lock = claim(path)
                # First without aiosqlite: where a file cannot be opened, its thread may outlive the event loop, and
                # ends with a traceback then.
                sqlite3.connect(path).close()
            async with postgres.schema(self._url) if self.shared else self._writer.begin() as connection:
                yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection that sees one state of the store, for however long it is read, while a sidecar writes.

        Raises:
            ConfigError, StoreAway: as of `open`.
            NoStore: there is no store yet.
        """
        if not self.shared and ((path := sqlite_file(self._url)) is None or not path.is_file()):
            raise NoStore(f"store.url: expected a store, found no file {path}")
        async with self._opening(), self._engine.connect() as connection:
            if not self.shared and connection.sync_connection is not None:
                sqlite.stream_by_few(connection.sync_connection)
            yield connection

    @asynccontextmanager
    async def _opening(self) -> AsyncIterator[None]:
        """Close the store where it cannot be used, with an error that says why."""
        try:
            yield
        except (ConfigError, StoreAway):
            await self.close()
            raise
        except (SQLAlchemyError, sqlite3.Error, OSError) as error:
            await self.close()
            reason = getattr(error, "orig", None) or error
            if self.shared and postgres.is_away(error):
                raise StoreAway(f"store.url: {self._url!r} cannot be reached at the moment ({reason})") from error
            raise ConfigError(
                f"store.url: expected a store that can be opened and written, found {self._url!r} ({reason})"
            ) from error

    async def scrub(self) -> bool:
        """Empty SQLite's log, which holds pages as they were, so that deleted data is in no file. Returns False if
        there were readers all the time and it was not emptied; that is logged, and `unscrubbed` is True then.
        PostgreSQL has its own vacuum.

        Raises:
            OperationalError: the disk is full, or fails.
        """
        if self.shared:
            self.unscrubbed = False
            return True
        self.unscrubbed = True
        async with AsyncExitStack() as held:
            await self._queue(held)
            connection = await held.enter_async_context(self._engine.connect())
            driver: Any = (await connection.get_raw_connection()).driver_connection
            await driver.execute(f"PRAGMA busy_timeout={_SCRUB_TIMEOUT_MS}")
            try:
                busy, *_ = await (await driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")).fetchone()
            except sqlite3.OperationalError as error:  # a full disk: as every other statement says it
                raise OperationalError(None, None, error) from error
            finally:
                await driver.execute(f"PRAGMA busy_timeout={sqlite.BUSY_TIMEOUT_MS}")
            self.unscrubbed = bool(busy)  # while no writer of this process can delete more
        if busy:
            _log.warning("deleted_data_in_log", reason="another connection was reading the store")
        return not busy

    async def close(self) -> None:
        await self._engine.dispose()
        await self._writer.dispose()
        if self._lock is not None:
            self._lock.close()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """A session for reading.

        Raises:
            SQLAlchemyError: the store is away, or does not answer.
        """
        async with self._within(_LONGEST_READ), self._readers() as session:
            yield session

    @asynccontextmanager
    async def write(self, *, alone: bool = True) -> AsyncIterator[AsyncSession]:
        """A session in one transaction: committed at the end of the block, rolled back by an exception.

        Args:
            alone: no other transaction is alone meanwhile, of no sidecar. One that is not alone may touch nothing but
                rows which others leave to it; see `sidecars.hold`.

        Raises:
            OperationalError: the store is away, does not answer, or was not to be had in time.
        """
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._within(_LONGEST_WRITE))
            if alone or not self.shared:
                await self._queue(held)
            sessions = self._writers if alone else self._writers_beside
            held.callback(self._wrote)
            yield await held.enter_async_context(sessions.begin())

    def _wrote(self) -> None:
        self.writes += 1

    async def _queue(self, held: AsyncExitStack) -> None:
        if self._waiting >= _MOST_WAITING:
            raise OperationalError(None, None, Exception(f"{self._waiting} writers wait for the store"))
        self._waiting += 1
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                await self._writing.acquire()
        except TimeoutError as error:
            raise OperationalError(None, None, error) from error
        finally:
            self._waiting -= 1
        held.callback(self._writing.release)

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Give up a PostgreSQL that does not answer. SQLite is in this process, and has a limit of its own."""
        try:
            async with asyncio.timeout(seconds if self.shared else None):
                yield
        except TimeoutError as error:
            raise OperationalError(None, None, error) from error
