"""What each start of a sidecar makes anew though it is always the same: made once for the tests of a process.

A sidecar that starts a thousand times in the tests spends two thirds of its time on these. Processes that tests start
make them as ever.
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
from sqlalchemy.engine import Connection, Engine

from slipstream.capture import redacted
from slipstream.redaction import redactor
from slipstream.redaction.suspects import Suspects
from slipstream.store import schema
from slipstream.store.cipher import Cipher
from slipstream.store.database import Database


@contextmanager
def made_once() -> Iterator[None]:
    """The schema of a new SQLite store, its compiled statements, httpx's TLS context, and Hyperscan's databases."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "upgrade", _migrated_once())
        patch.setattr(Database, "__init__", _compiled_once())
        patch.setattr(httpx._transports.default, "create_ssl_context", _tls_context)
        for module in (redactor, redacted):
            patch.setattr(module, "Suspects", _suspects)
        yield


def _tls_context(**how: Any) -> ssl.SSLContext:
    if how["verify"] is not True or how.get("cert") is not None:
        return httpx.create_ssl_context(**how)
    return _usual_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"), how["trust_env"])


@functools.cache
def _usual_context(file: str | None, folder: str | None, trust_env: bool) -> ssl.SSLContext:
    """A context for what httpx reads of the environment."""
    return httpx.create_ssl_context(trust_env=trust_env)


def _suspects(signs: Mapping[str, Iterable[str]]) -> Suspects:
    return _compiled(tuple((kind, tuple(patterns)) for kind, patterns in signs.items()))


@functools.cache
def _compiled(signs: tuple[tuple[str, tuple[str, ...]], ...]) -> Suspects:
    return Suspects(dict(signs))


def _compiled_once() -> object:
    """Let SQLite stores use the dialect of the first of them that was opened, and the statements compiled for it. One
    that is encrypted has its cipher beside its dialect, and keeps its own."""
    make = Database.__init__
    first: Engine | None = None

    def init(self: Database, url: str, cipher: Cipher | None = None) -> None:
        nonlocal first
        make(self, url, cipher)
        if self.shared or cipher is not None:
            return
        if first is None or first.dialect.server_version_info is None:  # not opened: its dialect knows no version
            first = self._engine.sync_engine
            return
        for engine in (self._engine.sync_engine, self._writer.sync_engine):
            engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache

    return init


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
