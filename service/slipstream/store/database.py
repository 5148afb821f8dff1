"""The connection to the store, and its schema."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from sqlalchemy import event
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

_BUSY_TIMEOUT_MS = 30_000
"""How long a writer of another process (a backup, a shell) is waited for."""


class Database:
    """Sessions on the store.

    SQLite allows one writer at a time, so writers queue here, in order, instead of meeting its lock; readers do not
    wait (write-ahead log). `synchronous=FULL` makes an acknowledged write survive a power cut as well as a kill.

    Args:
        url: an async SQLAlchemy URL such as `sqlite+aiosqlite:///slipstream.db`.
    """

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._engine = create_async_engine(self._url)
        self._sessions = async_sessionmaker(self._engine, expire_on_commit=False)
        self._writing = asyncio.Lock()
        if self._url.get_backend_name() == "sqlite":
            event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)

    async def open(self) -> None:
        """Bring the schema to the newest revision, creating the file's folder and the tables where missing."""
        if self._url.get_backend_name() == "sqlite" and self._url.database not in (None, "", ":memory:"):
            Path(str(self._url.database)).parent.mkdir(parents=True, exist_ok=True)
        async with self._engine.begin() as connection:
            await connection.run_sync(_upgrade)

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        """A session for reading."""
        async with self._sessions() as session:
            yield session

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncSession]:
        """A session in one transaction: committed at the end of the block, rolled back by an exception."""
        async with self._writing, self._sessions.begin() as session:
            yield session


def _prepare_sqlite(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_TIMEOUT_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _upgrade(connection: Connection) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    alembic.command.upgrade(config, "head")
