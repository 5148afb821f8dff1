"""The start of the training side, which may have to wait for its store. Meanwhile it says so to whoever asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from slipstream.errors import StoreAway

_log = structlog.get_logger(__name__)

_AGAIN = 5.0
"""Seconds between two tries: soon enough to notice that it is back, and not too many words in the log."""


class Start:
    """Starts at once, or as soon as the store is there.

    Args:
        start: raises StoreAway where it cannot be done yet, and may be called again then.
        failed: called when it fails for another reason after it had to wait.

    Attributes:
        failure: that reason.
    """

    def __init__(self, start: Callable[[], Awaitable[None]], failed: Callable[[], None]) -> None:
        self._start = start
        self._failed = failed
        self._waiting: asyncio.Task[None] | None = None
        self.failure: Exception | None = None

    async def begin(self) -> None:
        """Start, or wait for it in the background.

        Raises:
            Exception: what `start` raises, but StoreAway.
        """
        try:
            await self._start()
        except StoreAway as error:
            _log.error("store_away", reason=str(error))
            self._waiting = asyncio.create_task(self._wait(), name="start")

    async def end(self) -> None:
        """Wait no longer."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)

    async def _wait(self) -> None:
        began = time.monotonic()
        try:
            while True:
                await asyncio.sleep(_AGAIN)
                waited = round(time.monotonic() - began)
                try:
                    await self._start()
                except StoreAway as away:
                    _log.error("store_away", reason=str(away), waited_seconds=waited)
                else:
                    _log.info("store_reached", waited_seconds=waited)
                    return
        except Exception as error:  # noqa: BLE001 - whoever is told raises it
            self.failure = error
            self._failed()
