"""PostgreSQL as the store: how its connections are made, and how it stays this sidecar's alone.

A store has one writer, and the writer's connection holds an advisory lock from its first moment to its last. So a
sidecar that has lost that connection can write again only once it has the lock again, and nobody can write meanwhile
what it does not know of. A kill ends the connection, and with it the lock.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, Dialect
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

_CONNECT_TIMEOUT = 10
"""Seconds for a connection, all in all; asyncpg's own minute would hold up a first start that has a wrong address."""

_LOCK_TIMEOUT = "5s"
"""How long the lock is waited for: a server needs a moment to notice that the sidecar before was killed."""

_KEEPALIVE = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
"""The server lets go of a sidecar whose machine has vanished after a minute, and not after two hours."""

_CLAIM = "SELECT pg_advisory_lock(hashtext('slipstream'), hashtext(current_schema()))"
_LOCK_NOT_AVAILABLE = "55P03"

_QUOTING = ("22", "23")
"""Classes of errors that quote values: of data, and of constraints. asyncpg's own about a value are ValueErrors."""


class StoreTaken(OperationalError):
    """Another sidecar has the store."""


def engines(url: URL) -> tuple[AsyncEngine, AsyncEngine]:
    """An engine for reading, in which a session sees one state of the store, and one for writing.

    Raises:
        ModuleNotFoundError: without the extra `[postgres]`.
    """
    arguments: dict[str, Any] = {"timeout": _CONNECT_TIMEOUT, "server_settings": _KEEPALIVE}
    readers = create_async_engine(url, hide_parameters=True, connect_args=arguments, isolation_level="REPEATABLE READ")
    writer = create_async_engine(url, hide_parameters=True, connect_args=arguments, pool_size=1, max_overflow=0)
    for engine in (readers, writer):
        event.listen(engine.sync_engine, "do_connect", _connect)
        event.listen(engine.sync_engine, "connect", _take_any_text)
        event.listen(engine.sync_engine, "handle_error", _quote_nothing)
    event.listen(writer.sync_engine, "connect", _claim)
    return readers, writer


def _connect(dialect: Dialect, record: object, arguments: Any, named: Any) -> Any:
    """As SQLAlchemy does, with what asyncpg raises here made an error of SQLAlchemy's, like any other of the store."""
    import asyncpg

    try:
        return dialect.connect(*arguments, **named)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise OperationalError(None, None, error) from error


def _take_any_text(connection: Any, record: object) -> None:
    """PostgreSQL's texts hold no NUL character, which JSON can name and SQLite keeps."""

    async def set_codecs(driver: Any) -> None:
        for name in ("text", "varchar"):
            await driver.set_type_codec(
                name, schema="pg_catalog", encoder=lambda text: text.replace("\0", "\ufffd"), decoder=str
            )

    connection.run_async(set_codecs)


def _claim(connection: Any, record: object) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        cursor.execute(_CLAIM)
    except connection.dbapi.Error as error:
        taken = getattr(error, "sqlstate", None) == _LOCK_NOT_AVAILABLE
        raise (StoreTaken if taken else OperationalError)(None, None, error) from error
    cursor.close()
    connection.commit()


def _quote_nothing(context: ExceptionContext) -> None:
    """The text of an error goes to the log, and PostgreSQL's and asyncpg's quote the values that they are about."""
    error = context.sqlalchemy_exception
    driver: Any = context.original_exception.__cause__
    state = str(getattr(driver, "sqlstate", ""))
    if error is not None and (state.startswith(_QUOTING) or isinstance(driver, ValueError)):
        error.args = context.original_exception.args = driver.args = (type(driver).__name__,)
        driver.detail = None
