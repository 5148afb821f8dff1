"""When what is ready goes out: the timer ran out, enough has gathered, or the sidecar ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from slipstream.config.settings import Commit
from slipstream.delivery import Committer
from slipstream.errors import ExplorerError
from slipstream.store import commits
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)


class CommitTriggers:
    """Asks for commits that nobody asked for.

    Args:
        wake: called when the timer runs out, so that `step` is.
    """

    def __init__(self, database: Database, committer: Committer, settings: Commit, *, wake: Callable[[], None]) -> None:
        self._database = database
        self._committer = committer
        self._settings = settings
        self._wake = wake
        self._scheduler = AsyncIOScheduler(timezone="UTC")
        self._timer_ran_out = False

    def start(self) -> None:
        """Start the timer."""
        self._scheduler.add_job(
            self._on_timer,
            "interval",
            seconds=self._settings.interval,
            id="commit",
            coalesce=True,
            misfire_grace_time=None,
        )
        self._scheduler.start()

    def stop(self) -> None:
        """Stop the timer."""
        self._scheduler.shutdown(wait=False)

    @property
    def next_at(self) -> float | None:
        """When the timer runs out, Unix seconds."""
        job = self._scheduler.get_job("commit")
        return job.next_run_time.timestamp() if job is not None and job.next_run_time is not None else None

    async def step(self) -> bool:
        """Commit because the timer ran out, or because enough is ready."""
        if self._timer_ran_out:
            self._timer_ran_out = False
            await self._commit("interval", self._settings.min_experiences)
        limit = self._settings.max_pending
        if limit is not None:
            async with self._database.read() as session:
                ready = await commits.ready_experiences(session)
            if ready >= limit:
                await self._commit("size", limit)
        return False

    async def last(self, seconds: float) -> None:
        """Commit because the sidecar ends, if that is wanted and done in time."""
        if not self._settings.on_shutdown:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._commit("shutdown", 1)
        except TimeoutError:
            _log.warning("commit_left_for_the_next_start")

    async def _on_timer(self) -> None:
        self._timer_ran_out = True
        self._wake()

    async def _commit(self, trigger: str, minimum: int) -> None:
        try:
            await self._committer.commit(trigger, minimum)
        except ExplorerError as error:
            _log.warning("commit_postponed", trigger=trigger, reason=str(error))
