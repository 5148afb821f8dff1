"""Trinity's table of recorded chats: the one repair that its HTTP does not offer, and the version that gave an answer.

An answer that was given a reward is `consumed` there, and a second reward has no effect, although the first may be
lost with the memory of its process. Setting it back makes Trinity take a reward again.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from sqlalchemy import bindparam, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from slipstream.errors import ConfigError

_log = structlog.get_logger(__name__)

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
            self._engine = create_async_engine(url, hide_parameters=True)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"explorer.history_url: needs the package {error.name}, which is not installed"
            ) from error

    async def release(self, msg_ids: Sequence[str]) -> bool:
        """Let these answers be rewarded again. Returns False where the database does not answer: nothing changed."""
        try:
            async with self._engine.begin() as connection:
                await connection.execute(_RELEASE, [{"msg_id": msg_id} for msg_id in msg_ids])
        except (SQLAlchemyError, OSError) as error:
            _log.error("history_failed", error=repr(error))
            return False
        return True

    async def versions(self, msg_ids: Sequence[str]) -> dict[str, int]:
        """The version that gave each of these answers, as far as they are there.

        Raises:
            SQLAlchemyError, OSError: the database does not answer.
        """
        async with self._engine.connect() as connection:
            rows = await connection.execute(_VERSIONS, {"msg_ids": list(msg_ids)})
            return {row.msg_id: row.model_version for row in rows if row.model_version is not None}

    async def aclose(self) -> None:
        await self._engine.dispose()
