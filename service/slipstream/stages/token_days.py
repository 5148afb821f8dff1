"""The stage that stores the tokens that were counted in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slipstream.store import token_days
from slipstream.store.database import Database
from slipstream.usage import TokenTally

TICK = 5.0
"""Seconds: as much is not counted if the process is killed."""


class TokenDays:
    """Adds what was counted to the day on which it is stored."""

    def __init__(self, database: Database, tally: TokenTally, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._tally = tally
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def step(self) -> bool:
        """Store what was counted. What cannot be stored stays counted.

        Who returns from here finds all of it in the store, also what another step had taken and was storing.
        """
        async with self._one_at_a_time:
            used = self._tally.take()
            if not used:
                return False
            try:
                async with self._database.write() as session:
                    await token_days.add(session, used, self._clock())
            except BaseException:
                self._tally.put(used)
                raise
        return False
