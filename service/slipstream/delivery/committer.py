"""The committer: one delivery at a time over all sidecars that share a store.

The row of a delivery carries the sidecar that is at it. Another one begins none meanwhile. It ends the delivery where
that sidecar let go of it, because the Explorer was away, or is gone (`sidecars.take_over`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.delivery.delivered import Delivered
from slipstream.delivery.delivery import Delivery, TakenOver
from slipstream.errors import ExplorerError
from slipstream.explorer.handover import Handover
from slipstream.stages.context import Context
from slipstream.store import audit, commits, facade, ready_groups, sidecars
from slipstream.store.audit import Action, Author, Write
from slipstream.store.commits import Commit
from slipstream.store.sidecars import LeaseLost
from slipstream.tracing.catalogue import Attribute, SpanName

_log = structlog.get_logger(__name__)

_POLL = 0.1
"""Seconds between two looks whether another sidecar's delivery has ended."""


class Committer:
    """Delivers ready groups."""

    def __init__(self, context: Context, explorer: Handover, delivery: Delivery) -> None:
        self._database = context.database
        self._metrics = context.metrics
        self._tracer = context.tracer
        self._membership = context.membership
        self._clock = context.clock
        self._explorer = explorer
        self._delivery = delivery
        self._group_size = context.settings.facade_group_size
        self._group_idle = context.settings.facade.group_idle
        self._one_at_a_time = asyncio.Lock()
        self._holding = False

    async def commit(self, trigger: str, minimum: int = 1, *, wait: bool = True, by: Author | None = None) -> Delivered:
        """Deliver what is ready, if that is at least `minimum` experiences.

        Args:
            wait: while another sidecar delivers; else that is enough.
            by: who asked for it; None for a timer or a size.

        Raises:
            ExplorerError: the Explorer is away or failed. Nothing is lost: what was begun is ended by the next call,
                of any sidecar.
        """
        return await self._in_turn(trigger, minimum, wait, by)

    async def resume(self) -> Delivered:
        """End a delivery that a sidecar has left which is gone.

        Raises:
            ExplorerError: as above.
        """
        return await self._in_turn(None, 1, wait=False)

    async def let_go(self) -> None:
        """Leave a delivery that was begun, and that this sidecar is not at any more, to whoever is next."""
        if self._holding and not self._one_at_a_time.locked():
            async with self._one_at_a_time:
                await self._let_go()

    async def _in_turn(self, trigger: str | None, minimum: int, wait: bool, by: Author | None = None) -> Delivered:
        async with self._one_at_a_time:
            try:
                return await self._deliver(trigger, minimum, wait, by)
            except ExplorerError:
                self._metrics.commits.labels("error").inc()
                raise
            finally:
                await self._let_go()

    async def _deliver(self, trigger: str | None, minimum: int, wait: bool, by: Author | None) -> Delivered:
        await self._end_waiting()
        ended = Delivered()
        while True:
            async with self._database.read() as session:
                unfinished = await commits.unfinished(session)
                ready = await ready_groups.ready_experiences(session)
                newest = await commits.last(session)
            done = None
            try:
                if unfinished is not None:
                    done = await self._end(unfinished, by)
                elif trigger is None or ready < max(1, minimum):
                    return ended
                else:
                    done = await self._begin(trigger, None if newest is None else newest[0], by)
            except (TakenOver, LeaseLost) as error:
                _log.warning("delivery_taken_over", reason=str(error))
            if done is not None:
                ended = done.after(ended)
                if unfinished is None:
                    return ended
            elif wait:
                await asyncio.sleep(_POLL)
            else:
                return ended

    async def _end_waiting(self) -> None:
        """Groups of the facade that nothing came for any more are complete, or dropped."""
        now = self._clock()
        async with self._database.write() as session:
            dropped = await facade.end_waiting(session, now - self._group_idle, self._group_size, now)
        if dropped:
            _log.warning("facade_groups_of_one_run_dropped", groups=dropped)
            self._metrics.groups.labels("dropped").inc(dropped)

    async def _end(self, unfinished: Commit, by: Author | None) -> Delivered | None:
        """End a delivery that was cut off; None where another sidecar is at it."""
        if unfinished.owner not in (None, self._membership.id) or not self._delivery.may_send:
            return None
        self._holding = True
        async with self._database.write() as session:
            await sidecars.hold(session, self._membership.id)
            taken = await commits.take(session, unfinished.id, self._membership.id)
            if taken is not None:
                await self._note(session, taken, by)
        if taken is None:
            return None
        return self._over(await self._traced(taken, "resumed", self._delivery.resume(taken)))

    async def _begin(self, trigger: str, last: int | None, by: Author | None) -> Delivered | None:
        """Deliver what is ready; None where another sidecar came first."""
        if not self._delivery.may_send:
            return None
        before, owner = await self._explorer.counters(), self._membership.id
        self._holding = True
        async with self._database.write() as session:
            await sidecars.hold(session, owner)
            begun = await commits.begin(
                session,
                trigger,
                owner,
                self._clock(),
                (before.ready, before.total, before.step),
                after=last,
            )
            if begun is not None:
                await self._note(session, begun[0], by)
        if begun is None:
            return None
        return self._over(await self._traced(begun[0], trigger, self._delivery.send(*begun, before)))

    async def _traced(self, commit: Commit, trigger: str, delivery: Awaitable[Delivered]) -> Delivered:
        with self._tracer.span(SpanName.COMMIT, {Attribute.COMMIT: commit.id, Attribute.TRIGGER: trigger}) as span:
            delivered = await delivery
            span.set({Attribute.GROUPS: delivered.groups, Attribute.EXPERIENCES: delivered.experiences})
            return delivered

    async def _note(self, session: AsyncSession, commit: Commit, by: Author | None) -> None:
        if by is not None:
            await audit.note(session, Write(Action.COMMIT, str(commit.id)), by, self._clock())

    def _over(self, delivered: Delivered) -> Delivered:
        self._holding = False
        return delivered

    async def _let_go(self) -> None:
        if not self._holding:
            return
        try:
            with suppress(TakenOver):
                await self._delivery.end_lost()
            async with self._database.write() as session:
                await commits.let_go(session, self._membership.id)
        except SQLAlchemyError as error:  # `let_go` is called again
            _log.warning("delivery_not_let_go", reason=str(error))
        else:
            self._holding = False
