"""Deliveries, put together: how one goes (`delivery`), whose turn it is (`committer`), and when (`triggers`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from slipstream.cluster.membership import Membership
from slipstream.delivery.committer import Committer
from slipstream.delivery.delivery import Delivery
from slipstream.delivery.triggers import CommitTriggers
from slipstream.explorer.handover import Handover
from slipstream.explorer.history import TrinityHistory
from slipstream.metrics import Metrics
from slipstream.settings.sidecar import Settings
from slipstream.stages.timers import Timers
from slipstream.stages.worker import TICK, Worker
from slipstream.store.database import Database


class Deliveries:
    """The stage that hands ready groups to the Explorer.

    Args:
        planned: called when groups that the Explorer lost are to be run again.

    Attributes:
        committer: delivers when it is asked to.
        triggers: ask when nobody does.
        worker: the loop.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        metrics: Metrics,
        membership: Membership,
        timers: Timers,
        *,
        planned: Callable[[], None],
    ) -> None:
        explorer = settings.explorer
        self._handover = Handover(
            explorer.base_url, connect_timeout=explorer.connect_timeout, commit_timeout=explorer.commit_timeout
        )
        url = explorer.history_url
        self._history = None if url is None else TrinityHistory(url)
        delivery = Delivery(
            database,
            self._handover,
            metrics,
            membership,
            history=self._history,
            max_generations=settings.runs.max_attempts,
            webhook_runs=settings.runs.mode == "webhook",
            clock=time.time,
            planned=planned,
        )
        self.committer = Committer(
            database,
            self._handover,
            delivery,
            metrics,
            membership,
            group_size=settings.facade_group_size,
            group_idle=settings.facade.group_idle,
            clock=time.time,
        )
        self.triggers = CommitTriggers(
            database, self.committer, settings.commit, timers, clock=time.time, wake=lambda: self.worker.wake()
        )
        self.worker = Worker("committer", self.triggers.step, TICK)

    async def aclose(self) -> None:
        """Let go of the Explorer, and of Trinity's history."""
        self._handover.close()
        if self._history is not None:
            await self._history.aclose()
