"""Runs, put together: shadow calls by the sidecar, and agents that are run again by their clients or by an endpoint."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from slipstream.cluster.membership import Membership
from slipstream.explorer.client import ExplorerClient
from slipstream.explorer.watch import ExplorerWatch
from slipstream.facade.chats import Chats
from slipstream.metrics import Metrics
from slipstream.redaction.redactor import Redactor
from slipstream.runs.breaker import CircuitBreaker
from slipstream.runs.budget import TICK as BUDGET_TICK
from slipstream.runs.budget import Budget
from slipstream.runs.replay import Replays
from slipstream.runs.shadow import ShadowCaller
from slipstream.runs.webhook import WebhookCaller
from slipstream.settings.sidecar import Settings
from slipstream.stages.timers import Timers
from slipstream.stages.worker import TICK, Worker
from slipstream.store.database import Database


class Runs:
    """The stages that execute runs, and what bounds them all.

    Args:
        chats: that agents' calls are carried by.
        answered: called when there are answers to be scored.
        scored: called when a group may have become ready.

    Attributes:
        workers: the loops.
        the other parts: for the routes.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        explorer: ExplorerClient,
        watch: ExplorerWatch,
        chats: Chats,
        redactor: Redactor,
        prompts: Redactor,
        metrics: Metrics,
        membership: Membership,
        timers: Timers,
        *,
        answered: Callable[[], None],
        scored: Callable[[], None],
    ) -> None:
        self.breaker = CircuitBreaker(time.monotonic)
        allowed = settings.runs.budget
        self.budget = Budget(
            database,
            metrics,
            "runs",
            requests=allowed.requests_per_hour,
            tokens=allowed.tokens_per_hour,
            clock=time.time,
        )
        self.shadow = ShadowCaller(
            database,
            explorer,
            self.breaker,
            redactor,
            metrics,
            self.budget,
            owner=lambda: membership.id,
            concurrency=settings.runs.concurrency,
            max_attempts=settings.runs.max_attempts,
            grace=settings.rewards.grace,
            version=lambda: watch.version,
            clock=time.time,
            rng=random.Random(),  # noqa: S311 - spreads retries, guards nothing
            answered=answered,
            wake=lambda: self._calling.wake(),
        )
        self.replays = Replays(
            database,
            explorer,
            chats,
            redactor,
            prompts,
            metrics,
            membership,
            self.budget,
            model_name=settings.explorer.served_model_name,
            most_open=settings.runs.open,
            timeout=settings.runs.replay_timeout,
            grace=settings.rewards.grace,
            clock=time.time,
            answered=answered,
            scored=scored,
        )
        self.webhook: WebhookCaller | None = None
        if settings.runs.mode == "webhook":
            self.webhook = WebhookCaller(
                database,
                self.replays,
                CircuitBreaker(time.monotonic),
                settings,
                metrics,
                membership,
                ready=lambda: watch.up is True and self.budget.open,
                clock=time.time,
                rng=random.Random(),  # noqa: S311 - spreads retries, guards nothing
                wake=self.planned,
            )
        self._calling = Worker("shadow", self.shadow.step, TICK)
        self._telling = None if self.webhook is None else Worker("webhook", self.webhook.step, TICK)
        self.workers = (
            *((self._telling,) if self._telling is not None else ()),
            self._calling,
            Worker("replays", self.replays.step, TICK),
            timers.stage("budget", BUDGET_TICK, self.budget.step),
        )

    async def take_up(self) -> None:
        """Give up what a process before planned for a webhook, where there is none now.

        Raises:
            SQLAlchemyError: the store does not take it.
        """
        if self.webhook is None:
            await self.replays.give_up_planned()

    def planned(self) -> None:
        """There are runs to be begun."""
        self._calling.wake()
        if self._telling is not None:
            self._telling.wake()

    async def aclose(self) -> None:
        """Break off what is on its way."""
        if self.webhook is not None:
            await self.webhook.aclose()
        await self.shadow.stop()
