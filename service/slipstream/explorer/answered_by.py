"""The version that answered, compared with the version that the Explorer said it serves."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from slipstream.explorer.history import TrinityHistory
from slipstream.explorer.watch import ExplorerWatch
from slipstream.store import answered_versions
from slipstream.store.answered_versions import OtherVersion
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)

TICK = 60.0
"""Seconds between two looks."""

_NEWEST = 50
"""Answers that are compared."""

_RECENT = 3600.0
"""Seconds: of older answers nothing follows for now."""


class AnsweredBy:
    """Compares the newest answers with what Trinity recorded of them.

    Attributes:
        other: what is wrong; None if nothing is, as far as it is known.
    """

    def __init__(
        self, database: Database, history: TrinityHistory, watch: ExplorerWatch, *, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._history = history
        self._watch = watch
        self._clock = clock
        self.other: OtherVersion | None = None

    async def step(self) -> bool:
        """Look once."""
        async with self._database.read() as session:
            said = await answered_versions.newest(session, _NEWEST, self._clock() - _RECENT)
        try:
            recorded = await self._history.versions(list(said)) if said else {}
        except (SQLAlchemyError, OSError) as error:
            _log.warning("history_not_read", error=repr(error))
            return False
        pairs = [(said[msg_id], version) for msg_id, version in recorded.items()]
        self.other = answered_versions.compared(pairs, self._watch.newest)
        return False
