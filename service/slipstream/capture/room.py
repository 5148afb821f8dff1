"""The store's limit for captured calls: new ones are refused before the disk is full."""

from __future__ import annotations

import structlog

from slipstream.metrics import Metrics
from slipstream.store.database import Database
from slipstream.store.size import size

_log = structlog.get_logger(__name__)

TICK = 5.0
"""Seconds between two looks: a store that fills within them is small, and asking costs a millisecond."""

_AGAIN = 0.95
"""Part of the limit below which capture goes on: at the limit itself it would begin and end with each task deleted."""


class StoreRoom:
    """Looks at the store's size. Above the limit nothing new is captured; what is captured, and what people say of it,
    goes on.

    Args:
        limit: bytes.

    Attributes:
        full: nothing new is captured.
        size: bytes in use when it was looked at last, None before.
    """

    def __init__(self, database: Database, metrics: Metrics, limit: int) -> None:
        self._database = database
        self._metrics = metrics
        self._limit = limit
        self.full = False
        self.size: int | None = None

    async def step(self) -> bool:
        """Look, in a worker's step."""
        async with self._database.read() as session:
            self.size = await size(session)
        self._metrics.store_bytes.set(self.size)
        full = self.size >= self._limit * (_AGAIN if self.full else 1.0)
        if full is not self.full:
            _log.warning("store_full" if full else "store_has_room", bytes=self.size, limit=self._limit)
        self.full = full
        return False
