"""Deliveries, put together: how one goes (`delivery`), whose turn it is (`committer`), and when (`triggers`)."""

from __future__ import annotations

from slipstream.delivery.committer import Committer
from slipstream.delivery.delivery import Delivery
from slipstream.delivery.triggers import CommitTriggers
from slipstream.explorer.handover import Handover
from slipstream.explorer.history import TrinityHistory
from slipstream.stages.context import Context, Stage

TICK = 1.0
"""Seconds between two looks whether enough is ready, or a delivery is still to be let go of."""


class Deliveries:
    """The stage that hands ready groups to the Explorer.

    Attributes:
        committer: delivers when it is asked to.
        triggers: ask when nobody does.
        worker: the loop.
        history: Trinity's table of chats; None without `explorer.history_url`.
    """

    def __init__(self, context: Context) -> None:
        explorer = context.settings.explorer
        self._handover = Handover(
            explorer.base_url,
            context.parsing,
            connect_timeout=explorer.connect_timeout,
            commit_timeout=explorer.commit_timeout,
            tls=explorer.tls,
        )
        url = explorer.history_url
        self.history = None if url is None else TrinityHistory(url)
        self.committer = Committer(context, self._handover, Delivery(context, self._handover, self.history))
        self.triggers = CommitTriggers(context, self.committer)
        self.worker = context.stages.add(Stage.COMMITTER, self.triggers.step, TICK)

    async def aclose(self) -> None:
        """Let go of the Explorer, and of Trinity's history."""
        self._handover.close()
        if self.history is not None:
            await self.history.aclose()
