"""PostgreSQL as the store: how its connections are made, and how the sidecars that share it write one at a time.

A transaction that is to be alone begins with an advisory lock, which ends with it. Those who wait do so for a bounded
time, and the server ends the session of one that does nothing amid a transaction (a process that was stopped, a machine
that is gone), and with it the lock. Read committed: what it reads is what those before it have written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLError
from typing import Any

from sqlalchemy import NullPool, event
from sqlalchemy.engine import URL, Connection, Dialect
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

_CONNECT_TIMEOUT = 10
"""Seconds for a connection, all in all; asyncpg's own minute would hold up a first start that has a wrong address."""

_ALONE = "slipstream_alone"
"""The execution option of connections whose transactions begin with the lock."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('slipstream'), hashtext(current_schema()))"
"""Before several sidecars could share a store, each held this one for its life: no such sidecar writes beside these."""

_LOCK_TIMEOUT = 20
"""Seconds that the lock is waited for: longer than a stopped process holds it. That can be several times
`_IDLE_TIMEOUT`: its transaction with the lock may wait for a row of another one of its transactions, and be idle only
after that."""

_SCHEMA_LOCK_TIMEOUT = 60
"""Seconds, where the one before brings a large store to a new schema."""

_IDLE_TIMEOUT = 5
"""Seconds that a transaction may do nothing: other sidecars wait for it."""

_KEEPALIVE = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
"""The server lets go of a sidecar whose machine has vanished after a minute, and not after two hours."""

_WRITERS = {
    **_KEEPALIVE,
    "tcp_user_timeout": "10s",  # of one that was stopped while it was told something
    "lock_timeout": f"{_LOCK_TIMEOUT}s",
    "idle_in_transaction_session_timeout": f"{_IDLE_TIMEOUT}s",
}

_AWAY = ("08", "25P03", "40", "53", "55", "57", "58")
"""Classes of errors that say nothing of the statement: the same may be taken a moment later."""

_QUOTING = ("22", "23")
"""Classes of errors that quote values: of data, and of constraints. asyncpg's own about a value are ValueErrors."""


def engines(url: URL) -> tuple[AsyncEngine, AsyncEngine, AsyncEngine]:
    """An engine for reading, in which a session sees one state of the store, one for writing alone, and one for writing
    beside others.

    Raises:
        ModuleNotFoundError: without the extra `[postgres]`.
    """
    readers = _engine(url, _KEEPALIVE, isolation_level="REPEATABLE READ")
    writers = _engine(url, _WRITERS, isolation_level="READ COMMITTED")
    event.listen(writers.sync_engine, "begin", _begin)
    return readers, writers.execution_options(**{_ALONE: True}), writers


@asynccontextmanager
async def schema(url: URL) -> AsyncIterator[AsyncConnection]:
    """A connection in a transaction that is alone, for as long as a change of the schema takes.

    Raises:
        SQLAlchemyError: it cannot be made, or another sidecar did not end in time.
    """
    engine = _engine(
        url,
        {**_WRITERS, "lock_timeout": f"{_SCHEMA_LOCK_TIMEOUT}s"},
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
    )
    event.listen(engine.sync_engine, "begin", _begin)
    try:
        async with engine.execution_options(**{_ALONE: True}).begin() as connection:
            yield connection
    finally:
        await engine.dispose()


def is_away(error: BaseException) -> bool:
    """Return whether an error of opening the store is temporary, and not about an address, a name or a right."""
    cause = error.orig if isinstance(error, OperationalError) else error
    driver = cause if cause is None or hasattr(cause, "sqlstate") else cause.__cause__ or cause
    state = str(getattr(driver, "sqlstate", None) or "")
    return state.startswith(_AWAY) or (isinstance(driver, OSError) and not isinstance(driver, SSLError))


def _engine(url: URL, settings: dict[str, str], **how: Any) -> AsyncEngine:
    arguments: dict[str, Any] = {"timeout": _CONNECT_TIMEOUT, "server_settings": settings}
    engine = create_async_engine(url, hide_parameters=True, connect_args=arguments, **how)
    event.listen(engine.sync_engine, "do_connect", _connect)
    event.listen(engine.sync_engine, "connect", _take_any_text)
    event.listen(engine.sync_engine, "handle_error", _quote_nothing)
    event.listen(engine.sync_engine, "handle_error", _tell_apart, retval=True)
    return engine


def _begin(connection: Connection) -> None:
    if connection.get_execution_options().get(_ALONE, False):
        connection.exec_driver_sql(_LOCK)


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


def _quote_nothing(context: ExceptionContext) -> None:
    """The text of an error goes to the log, and PostgreSQL's and asyncpg's quote the values that they are about."""
    error = context.sqlalchemy_exception
    driver: Any = context.original_exception.__cause__
    state = str(getattr(driver, "sqlstate", ""))
    if error is not None and (state.startswith(_QUOTING) or isinstance(driver, ValueError)):
        error.args = context.original_exception.args = driver.args = (type(driver).__name__,)
        driver.detail = None


def _tell_apart(context: ExceptionContext) -> OperationalError | None:
    """SQLAlchemy knows asyncpg's errors by few classes; who tries again asks whether the store was away, or busy."""
    error = context.sqlalchemy_exception
    if error is None or isinstance(error, OperationalError):
        return None
    state = str(getattr(context.original_exception.__cause__, "sqlstate", None) or "")
    if not context.is_disconnect and not state.startswith(_AWAY):
        return None
    return OperationalError(None, None, context.original_exception, hide_parameters=True)
