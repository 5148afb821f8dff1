"""This sidecar among those that share the store: it is one of them while its lease runs, and takes over from the dead.

Without it nothing would be known of a sidecar that was killed, or stopped for a while, but that it says no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from slipstream.cluster.registration import Registration
from slipstream.store import sidecars
from slipstream.store.database import Database
from slipstream.store.sidecars import TakenOver

_log = structlog.get_logger(__name__)

RENEWALS = 3
"""Renewals in the time of a lease: two may fail."""


class Membership:
    """The registration of this sidecar.

    It takes over from others only after it has renewed its own lease for the time of one without a failure: where the
    store itself was away, nobody's lease is worth anything until all had time to renew theirs.

    On a store that has one sidecar there is nothing to renew, and the lease never ends.

    Args:
        name: for those who look.
        lease: seconds.
        clock: Unix seconds.
        monotonic: seconds that nobody sets.
        before: of the process in whose place this one was started.
        registered: told the id of each registration before anything is done in its name.
        took_over: called when something was taken over, or when it may have been and nobody heard of it.

    Attributes:
        id: of the registration, which what this sidecar holds carries. Changes where the lease was lost.
    """

    def __init__(
        self,
        database: Database,
        *,
        name: str,
        lease: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        before: Registration,
        registered: Callable[[int], Awaitable[None]],
        took_over: Callable[[TakenOver | None], None],
    ) -> None:
        self._database = database
        self._name = name
        self._lease = lease
        self._clock = clock
        self._monotonic = monotonic
        self._before = before
        self._registered = registered
        self._took_over = took_over
        self._until = 0.0
        self._steady_since: float | None = None
        self.id = 0

    @property
    def left(self) -> float:
        """Seconds for which nobody else can have taken over; 0 where somebody may have."""
        return max(0.0, self._until - self._monotonic()) if self._database.shared else self._lease

    async def start(self) -> None:
        """Register, and take over what those left who have ended.

        Raises:
            SQLAlchemyError: the store does not take it.
        """
        if self._database.shared and (before := self._before.read()):
            await self._resign(before)
        await self._register()
        await self._take_over(resigned=True)

    async def renew(self) -> bool:
        """Renew the lease, or register anew where it was lost."""
        if not self._database.shared:
            return False
        asked = self._monotonic()
        try:
            async with self._database.write(alone=False) as session:
                held = await sidecars.renew(session, self.id, self._lease)
            if held:
                if not self.left:  # where the store was what was slow, those of the others have run out as well
                    self._steady_since = None
                self._until = asked + self._lease
            else:
                _log.warning("lease_lost", sidecar=self.id)
                await self._register()
        except (SQLAlchemyError, OSError) as error:
            # tried again at the usual time: a longer pause, as other stages make, would cost the lease
            _log.warning("lease_not_renewed", sidecar=self.id, seconds_left=round(self.left, 1), reason=repr(error))
            self._steady_since = None
            return False
        if self._steady_since is None:
            self._steady_since = asked
        return False

    async def take_over(self) -> bool:
        """Take over from those whose lease has run out. Apart from `renew`, which must not wait for it: it is alone."""
        if self._database.shared and self.left and self._steady_since is not None:
            await self._take_over(resigned=self._monotonic() - self._steady_since < self._lease)
        return False

    async def stop(self) -> None:
        """End the lease, so that what is left may be taken over at once."""
        if self._database.shared and self.id:
            await self._resign(self.id)

    async def _resign(self, sidecar: int) -> None:
        async with self._database.write(alone=False) as session:
            await sidecars.resign(session, sidecar)

    async def _register(self) -> None:
        asked = self._monotonic()
        async with self._database.write() as session:
            registered = await sidecars.register(
                session, self._name, self._lease, now=self._clock(), alone=not self._database.shared
            )
        await self._registered(registered)  # where it fails, this start has not registered, and does so again
        self.id = registered
        self._before.note(registered)
        self._until = asked + self._lease
        self._steady_since = asked
        _log.info("registered", sidecar=self.id, name=self._name)

    async def _take_over(self, *, resigned: bool) -> None:
        mine = self.id  # which a renewal may change meanwhile
        async with self._database.read() as session:
            others = [other for other in await sidecars.expired(session, resigned=resigned) if other != mine]
        if not others:
            return
        try:
            async with self._database.write() as session:
                await sidecars.hold(session, mine)
                taken = await sidecars.take_over(session, mine, others, self._clock())
        except SQLAlchemyError:
            self._took_over(None)
            raise
        if taken.sidecars:
            _log.warning("sidecars_taken_over", **taken._asdict())
            self._took_over(taken)
