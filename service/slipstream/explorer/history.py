"""Trinity's table of recorded chats: the one repair that its HTTP does not offer, and the version that gave an answer.

An answer that was given a reward is `consumed` there, and a second reward has no effect, although the first may be
lost with the memory of its process. Setting it back makes Trinity take a reward again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from ssl import SSLError

import structlog
from sqlalchemy import bindparam, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from slipstream.errors import ConfigError, ExplorerUnavailable
from slipstream.store import postgres

_log = structlog.get_logger(__name__)

_LONGEST = 30.0
"""Seconds for one request, which takes milliseconds: a delivery waits for it, and with it all later ones."""

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_RELEASE = text("UPDATE proxy_history SET consumed = 0 WHERE msg_id = :msg_id")
_VERSIONS = text("SELECT msg_id, model_version FROM proxy_history WHERE msg_id IN :msg_ids").bindparams(
    bindparam("msg_ids", expanding=True)
)


class TrinityHistory:
    """Makes Trinity take rewards again.

    Args:
        url: an async SQLAlchemy URL of the database that Trinity calls `explorer.db_url`.

    Raises:
        ConfigError: the package for that database is not installed.
    """

    def __init__(self, url: str) -> None:
        try:
            # a delivery asks hours after the last one: a connection that its server has ended is no refusal
            self._engine = create_async_engine(url, hide_parameters=True, pool_pre_ping=True)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"explorer.history_url: needs the package {error.name}, which is not installed"
            ) from error

    async def release(self, msg_ids: Sequence[str]) -> bool:
        """Let these answers be rewarded again. Returns False where the database refuses: nothing changed.

        Raises:
            ExplorerUnavailable: it does not answer. The same may be asked again.
        """
        try:
            async with asyncio.timeout(_LONGEST), self._engine.begin() as connection:
                await connection.execute(_RELEASE, [{"msg_id": msg_id} for msg_id in msg_ids])
        except (SQLAlchemyError, OSError) as error:
            _log.error("history_failed", error=repr(error))
            if _is_away(error):
                raise ExplorerUnavailable("Trinity's history (explorer.history_url) does not answer") from error
            return False
        return True

    async def versions(self, msg_ids: Sequence[str]) -> dict[str, int]:
        """The version that gave each of these answers, as far as they are there.

        Raises:
            SQLAlchemyError, OSError: the database does not answer.
        """
        async with asyncio.timeout(_LONGEST), self._engine.connect() as connection:
            rows = await connection.execute(_VERSIONS, {"msg_ids": list(msg_ids)})
            return {row.msg_id: row.model_version for row in rows if row.model_version is not None}

    async def aclose(self) -> None:
        await self._engine.dispose()


def _is_away(error: SQLAlchemyError | OSError) -> bool:
    """Return whether the database does not answer; else it refuses, and would do so again."""
    if isinstance(error, OSError):
        return not isinstance(error, SSLError)
    if isinstance(error, DBAPIError) and isinstance(error.orig, sqlite3.OperationalError):
        return error.orig.sqlite_errorcode & 0xFF in _BUSY
    return (isinstance(error, DBAPIError) and error.connection_invalidated) or postgres.is_away(error)
