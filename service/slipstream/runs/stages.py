"""Runs, put together: shadow calls by the sidecar, and agents that are run again by their clients or by an endpoint."""

from __future__ import annotations

import time

from slipstream.explorer.client import ExplorerClient
from slipstream.explorer.watch import ExplorerWatch
from slipstream.facade.chats import Chats
from slipstream.redaction.redactor import Redactor
from slipstream.runs.breaker import CircuitBreaker
from slipstream.runs.budget import TICK as BUDGET_TICK
from slipstream.runs.budget import Budget
from slipstream.runs.replay import Replays
from slipstream.runs.shadow import ShadowCaller
from slipstream.runs.webhook import WebhookCaller
from slipstream.stages.context import Context, Stage


class Runs:
    """The stages that execute runs, and what bounds them all.

    Args:
        chats: that agents' calls are carried by.
        redactor: of what is stored.
        prompts: of what agents ask, before the Explorer gets it.

    Attributes:
        workers: the loops.
        the other parts: for the routes.
    """

    def __init__(
        self,
        context: Context,
        explorer: ExplorerClient,
        watch: ExplorerWatch,
        chats: Chats,
        redactor: Redactor,
        prompts: Redactor,
    ) -> None:
        self.breaker = CircuitBreaker(time.monotonic)
        allowed = context.settings.runs.budget
        self.budget = Budget(
            context.database,
            context.metrics,
            "runs",
            requests=allowed.requests_per_hour,
            tokens=allowed.tokens_per_hour,
            clock=context.clock,
        )
        self.shadow = ShadowCaller(context, explorer, watch, self.breaker, redactor, self.budget)
        self.replays = Replays(context, explorer, chats, redactor, prompts, self.budget)
        self.webhook: WebhookCaller | None = None
        workers = [context.stages.add(Stage.SHADOW, self.shadow.step)]
        if context.settings.runs.mode == "webhook":
            self.webhook = WebhookCaller(context, self.replays, CircuitBreaker(time.monotonic), watch, self.budget)
            workers.insert(0, context.stages.add(Stage.WEBHOOK, self.webhook.step))
        self.workers = (
            *workers,
            context.stages.add(Stage.REPLAYS, self.replays.step),
            *((context.timers.stage("budget", BUDGET_TICK, self.budget.step),) if self.budget.limited else ()),
        )

    async def take_up(self) -> None:
        """Give up what a process before planned for a webhook, where there is none now.

        Raises:
            SQLAlchemyError: the store does not take it.
        """
        if self.webhook is None:
            await self.replays.give_up_planned()

    async def aclose(self) -> None:
        """Break off what is on its way."""
        if self.webhook is not None:
            await self.webhook.aclose()
        await self.shadow.stop()
