"""Calls of agent replays that are under way: what the end of a run has to know of them.

A run's calls and its end may come to different sidecars. What is known of the calls is in the store where there can be
others (`store.in_flight`), and in memory where there are none.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import structlog
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.cluster.membership import Membership
from slipstream.store import in_flight, sidecars
from slipstream.store.database import Database
from slipstream.store.replays import Known

_log = structlog.get_logger(__name__)

_PATIENCE = 3.0
"""Seconds that the end of a run waits for answers that the agent has begun to read: agents leave a stream at its
`finish_reason`, before it is over. Short of the 5 s after which the client asks again."""

_POLL = 0.02
"""Seconds between two looks whether another sidecar has sent all of an answer."""


@dataclass(eq=False, slots=True)
class Call:
    """A call that came to this sidecar.

    Attributes:
        row: its number in the store, where other sidecars look; None where there are none.
        reading: its agent has a part of the answer, or is about to.
        told: its row says so, or is about to.
        sent: done once no more is sent of the answer.
    """

    run_pk: int
    row: int | None
    reading: bool = False
    told: bool = False
    sent: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class InFlightCalls:
    """The calls from before they are sent to the Explorer until their agent has the whole answer.

    Args:
        membership: in whose name calls are made.
    """

    def __init__(self, database: Database, membership: Membership) -> None:
        self._database = database
        self._membership = membership
        self._here: dict[int, set[Call]] = {}
        self._over: set[int] = set()

    def has(self, run_pk: int) -> bool:
        """Return whether a call of this run is under way here."""
        return run_pk in self._here

    async def begin(self, run: Known) -> Call | None:
        """Remember that a run begins a call, before it does: a crash may keep the answer from its agent.

        Returns None where the run is not open any more.
        """
        row: int | None = None
        if self._database.shared or not run.called:
            async with self._database.write(alone=False) as session:
                await sidecars.hold(session, self._membership.id)
                row = await in_flight.begin(session, run.pk, self._membership.id)
            if row is None:
                return None
        call = Call(run.pk, row if self._database.shared else None)
        self._here.setdefault(run.pk, set()).add(call)
        return call

    async def is_read(self, call: Call) -> None:
        """The agent is about to have a part of the answer."""
        call.reading = True
        if call.row is not None and not call.told:
            async with self._database.write(alone=False) as session:
                await self.tell_read(session, call)

    async def tell_read(self, session: AsyncSession, call: Call) -> None:
        """Have the store say, with what else this transaction writes, that the agent is about to have a part of it."""
        if call.row is not None:
            await in_flight.note_reading(session, call.row)
            call.told = True

    def end(self, call: Call) -> None:
        """No more is sent of the answer."""
        call.sent.set_result(None)
        self._here[call.run_pk].discard(call)
        if not self._here[call.run_pk]:
            del self._here[call.run_pk]

    async def forget(self, call: Call) -> bool:
        """Nothing is left to be told of a call. Returns False where the store does not take that, and `forget_ended`
        is to try again."""
        if call.row is not None:
            self._over.add(call.row)
            try:
                await self.forget_ended()
            except (SQLAlchemyError, OSError) as error:
                _log.warning("call_left_under_way", error=repr(error))
                return False
        return True

    async def forget_ended(self) -> None:
        """Have the store forget the calls of which nothing is left to be told."""
        if over := list(self._over):
            async with self._database.write(alone=False) as session:
                await in_flight.end(session, over)
            self._over.difference_update(over)

    async def read_to_the_end(self, run_pk: int) -> bool:
        """Wait for answers that the agent has begun to read, and return whether none is left. Otherwise the run is not
        whole; an answer of which nothing was sent yet had no part in what the agent did."""
        patient_until = time.monotonic() + _PATIENCE
        reading = {call.sent for call in self._here.get(run_pk, ()) if call.reading}
        if reading and (await asyncio.wait(reading, timeout=_PATIENCE))[1]:
            return False
        while self._database.shared and await self._others_send(run_pk):
            if time.monotonic() > patient_until:
                return False
            await asyncio.sleep(_POLL)
        return True

    async def read_elsewhere(self, session: AsyncSession, run_pk: int) -> bool:
        """Return whether another sidecar has sent the run's agent a part of an answer, and not yet all of it."""
        return await in_flight.read_elsewhere(session, run_pk, self._membership.id)

    async def _others_send(self, run_pk: int) -> bool:
        async with self._database.read() as session:
            return await self.read_elsewhere(session, run_pk)
