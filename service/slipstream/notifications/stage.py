"""The stage that tells receivers of webhooks what was decided about versions.

Each receiver is told of one event at a time, in a task of its own: one that hangs holds up no other. What is on its way
is claimed in the store, so that of several sidecars one tells it; after the claimant's death another does.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

import structlog

from slipstream.notifications.receiver import ReceiverClient
from slipstream.stages.context import Context, Stage
from slipstream.store import outbox, sidecars
from slipstream.store.outbox import Delivery

_log = structlog.get_logger(__name__)

_FIRST_PAUSE = 5.0
"""Seconds until an event is tried again: doubled with each try, up to ten minutes (`LONGEST_PAUSE`), so that a receiver
that is back has all within that time."""

_JITTER = random.Random()  # noqa: S311 - spreads retries, guards nothing

_LAST = 2.0
"""Seconds that an orderly end waits for outcomes to be stored."""

OUTCOMES = ("delivered", "failed", "dropped")


class Notifier:
    """Tells receivers of events until they have them, at least once.

    Attributes:
        worker: the loop; None where no receivers are configured.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._database = context.database
        self._metrics = context.metrics
        settings = context.settings.webhooks
        self._receivers = {each.name: ReceiverClient(each, settings.timeout) for each in settings.receivers}
        self._wanted = {name: receiver.events for name, receiver in self._receivers.items()}
        self._active: dict[str, asyncio.Task[None]] = {}
        """Tries on their way, by the receiver's name."""
        self._answered: set[str] = set()
        """Receivers of these that have answered: the outcome is being stored."""
        self.worker = context.stages.add(Stage.NOTIFIER, self.step) if self._receivers else None
        for name in self._receivers:
            for outcome in OUTCOMES:
                self._metrics.webhook_deliveries.labels(name, outcome)

    @property
    def receivers(self) -> tuple[str, ...]:
        """Return the names of the receivers."""
        return tuple(self._receivers)

    async def step(self) -> bool:
        """Give new events to receivers, and begin to tell each one that is idle the next. Returns True when more are
        to be given."""
        now = self._context.clock()
        idle = [name for name in self._receivers if name not in self._active]
        async with self._database.read() as session:
            if not await outbox.waits(session, idle, now):
                return False
        mine = self._context.membership.id
        async with self._database.write() as session:
            await sidecars.hold(session, mine)
            more = await outbox.give(session, self._wanted, now)
            claimed = [await outbox.claim(session, name, mine, now) for name in idle]
        for told in claimed:
            if told is not None:
                self._begin(told, mine)
        return more

    async def aclose(self) -> None:
        """Break off what is on its way: it is told again after the next start, or by another sidecar. What was answered
        is stored first."""
        answered = [task for name, task in self._active.items() if name in self._answered]
        if answered:
            await asyncio.wait(answered, timeout=_LAST)
        left = list(self._active.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for receiver in self._receivers.values():
            await receiver.aclose()

    async def refresh_gauges(self) -> None:
        """Bring the gauges that mirror the outbox up to date."""
        now = self._context.clock()
        async with self._database.read() as session:
            found = await outbox.waiting(session, self.receivers)
        for each in found:
            self._metrics.webhook_waiting.labels(each.receiver).set(each.count)
            oldest = 0.0 if each.since is None else max(0.0, now - each.since)
            self._metrics.webhook_oldest.labels(each.receiver).set(oldest)

    def _begin(self, told: Delivery, claimed_by: int) -> None:
        task = asyncio.create_task(self._tell(told, claimed_by), name=f"webhook {told.name} to {told.receiver}")
        self._active[told.receiver] = task
        task.add_done_callback(partial(self._done, told.receiver))

    def _done(self, receiver: str, task: asyncio.Task[None]) -> None:
        del self._active[receiver]
        self._answered.discard(receiver)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            # It is claimed still, and told again when the agenda wakes this next: within a second, and not at once.
            _log.error("webhook_interrupted", receiver=receiver, error=repr(error))
            return
        self._context.stages.wake(Stage.NOTIFIER)

    async def _tell(self, told: Delivery, claimed_by: int) -> None:
        receiver = self._receivers[told.receiver]
        error = await receiver.tell(told, self._context.clock())
        self._answered.add(told.receiver)
        outcome = "delivered" if error is None else "failed"
        self._metrics.webhook_deliveries.labels(told.receiver, outcome).inc()
        log = {"receiver": told.receiver, "webhook_id": told.name, "type": told.type, "attempts": told.attempts + 1}
        if error is None:
            _log.info("webhook_delivered", **log)
        else:
            _log.warning("webhook_not_delivered", **log, reason=error)
        async with self._database.write() as session:
            if error is None:
                await outbox.delivered(session, told)
            else:
                due_at = self._context.clock() + pause_after(told.attempts, _JITTER)
                await outbox.postpone(session, told, claimed_by, due_at, error)


def pause_after(attempts: int, jitter: random.Random) -> float:
    """The seconds until the next try.

    Args:
        attempts: tries that failed before this one.
    """
    longest = min(outbox.LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(attempts, 30))
    return longest * jitter.uniform(0.5, 1.0)
