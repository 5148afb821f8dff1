"""Calls of agent replays on their way into the store, each part of a conversation once, as those that are captured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.capture.prefixes import Messages, Prefixes
from slipstream.facade.chat import LONG_BODY
from slipstream.store import replay_calls
from slipstream.store.database import Database
from slipstream.store.replay_calls import NewCall
from slipstream.store.segments import NewRequest, Segment


class ReplayConversations:
    """Stores the calls of runs. A call goes on from the earlier ones of its run, and from those of the task's other
    runs, which begin with the same prompt.

    Args:
        limit: requests remembered, of all runs.
    """

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self._limit = limit
        self._prefixes = Prefixes(limit)

    def registered(self) -> None:
        """From here on calls are in the name of a registration: what is known of the store may be of another store."""
        self._prefixes = Prefixes(self._limit)

    @asynccontextmanager
    async def adding(
        self, task_id: str, run_pk: int, call: NewCall, expires_at: float, now: float
    ) -> AsyncIterator[tuple[AsyncSession, bool]]:
        """The transaction that stores a call of a run, for what else it is to write, and whether the run takes the
        call: it is open.

        Raises:
            SQLAlchemyError: as of `Database.write`.
        """
        prefixes, numbers = self._prefixes, dict[Segment, int]()
        try:
            # one call at a time is in this block, as the prefixes need it
            async with self._database.write() as session:
                request = await _stored_form(prefixes, task_id, call)
                added = await replay_calls.add_call(session, run_pk, call, request, expires_at, now)
                yield session, added is not None
            numbers.update(added or {})
        finally:
            prefixes.stored(numbers)


async def _stored_form(prefixes: Prefixes, task_id: str, call: NewCall) -> NewRequest:
    messages = None if call.split is None else Messages(task_id.encode(), call.split)
    if len(call.text) <= LONG_BODY:
        return prefixes.stored_form(call.text, messages)
    made = asyncio.create_task(asyncio.to_thread(prefixes.stored_form, call.text, messages))
    try:
        return await asyncio.shield(made)
    finally:
        await asyncio.wait([made])  # a caller that goes away does not end the thread, and it has the prefixes
