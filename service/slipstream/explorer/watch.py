"""Watching the Explorer: whether it is there, and which policy version it serves."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from slipstream.errors import ExplorerError
from slipstream.explorer.calls import ExplorerCounters
from slipstream.explorer.client import ExplorerClient
from slipstream.metrics import Metrics
from slipstream.store import versions
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)


class ExplorerWatch:
    """The last known state of the Explorer.

    Attributes:
        up: whether it answered the last time it was asked; None before the first time.
        version: the policy version it serves, as last seen.
        error: why it did not answer.
        since: when it was last seen to come or to go, Unix seconds; None before the first time.
        newest: the version of the engine that is ahead of the others.
        apart_since: since when engines serve different versions; None while they serve one.
    """

    def __init__(
        self, database: Database, explorer: ExplorerClient, metrics: Metrics, *, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._explorer = explorer
        self._metrics = metrics
        self._clock = clock
        self._counters: ExplorerCounters | None = None
        self.up: bool | None = None
        self.version: int | None = None
        self.error: str | None = None
        self.since: float | None = None
        self.newest: int | None = None
        self.apart_since: float | None = None

    async def step(self) -> bool:
        """Ask once."""
        try:
            seen = await self._explorer.counters()
        except ExplorerError as error:
            if self.up is not False:
                self.since = self._clock()
                _log.warning("explorer_away", reason=str(error))
            self.up, self.error = False, str(error)
            self._metrics.explorer_up.set(0)
            return False
        if self.up is not True:
            self.since = self._clock()
            _log.info("explorer_reached", policy_version=seen.version)
        self.up, self.error = True, None
        self._metrics.explorer_up.set(1)
        self.newest = seen.newest
        together = seen.newest == seen.version
        self.apart_since = None if together else self.apart_since or self._clock()
        last, self._counters = self._counters, seen
        if last is not None and seen.restarted_since(last.ready, last.total, last.step):
            _log.warning("explorer_restarted")
            self._metrics.explorer_restarts.inc()
        if seen.version is not None and seen.version != self.version:
            async with self._database.write() as session:
                before = await versions.record_version(session, seen.version, self._clock())
            if seen.version and before is not None and seen.version < before:
                _log.warning("policy_rolled_back", version=seen.version, instead_of=before)
            elif seen.version != before:
                _log.info("policy_version", version=seen.version)
            self.version = seen.version
            self._metrics.policy_version.set(seen.version)
        return False
