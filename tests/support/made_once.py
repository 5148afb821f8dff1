"""What each start of a sidecar makes anew though it is always the same: made once for the tests of a process.

A sidecar that starts a thousand times in the tests spends half of its time on these. Processes that tests start make
them as ever.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine import Connection

from slipstream.capture import redacted
from slipstream.redaction import redactor
from slipstream.redaction.suspects import Suspects
from slipstream.store import schema


@contextmanager
def made_once() -> Iterator[None]:
    """The schema of a new SQLite store, httpx's TLS context, and Hyperscan's databases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "upgrade", _migrated_once())
        patch.setattr(httpx._transports.default, "create_ssl_context", _tls_context)
        for module in (redactor, redacted):
            patch.setattr(module, "Suspects", _suspects)
        yield


def _tls_context(**how: Any) -> ssl.SSLContext:
    own = how["verify"] is not True or any(name in os.environ for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
    return httpx.create_ssl_context(**how) if own else _usual_context()


_usual_context = functools.cache(httpx.create_ssl_context)


def _suspects(signs: Mapping[str, Iterable[str]]) -> Suspects:
    return _compiled(tuple((kind, tuple(patterns)) for kind, patterns in signs.items()))


@functools.cache
def _compiled(signs: tuple[tuple[str, tuple[str, ...]], ...]) -> Suspects:
    return Suspects(dict(signs))


def _migrated_once() -> object:
    """Migrate one store from nothing, and copy its schema into every other new one. One with tables is migrated."""
    migrate = schema.upgrade
    # At once, and not when the first test opens a store: one that watches engines would see this one too.
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(f"{folder}/store.db")) as template:
        engine = create_engine(f"sqlite:///{folder}/store.db")
        with engine.begin() as first:
            migrate(first)
        engine.dispose()
        lines = [line for line in template.iterdump() if line not in {"BEGIN TRANSACTION;", "COMMIT;"}]

    def upgrade(connection: Connection, to: str = "head") -> None:
        if to != "head" or connection.dialect.name != "sqlite" or inspect(connection).get_table_names():
            migrate(connection, to)
            return
        for statement in lines:
            connection.exec_driver_sql(statement)

    return upgrade
