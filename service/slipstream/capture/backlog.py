"""How much the Intake has written that the Recorder has not read yet: the bound between them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.store import captured
from slipstream.store.captured import Parcel
from slipstream.store.database import Database


class Backlog:
    """What waits in the store to be read. Both sides say what they did, so that nobody has to count.

    Args:
        limit_bytes: that are enough.

    Attributes:
        exchanges: that wait.
        size: their bytes.
        last_id: the newest parcel's, or what would be before the first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.exchanges = 0
        self.size = 0
        self.last_id = 0

    async def open(self, database: Database) -> None:
        """Take up what the last process left.

        Raises:
            SQLAlchemyError: the store cannot be read.
        """
        async with database.read() as session:
            self.last_id, self.exchanges, self.size = await captured.waiting(session)

    @property
    def full(self) -> bool:
        """Whether enough waits."""
        return self.size >= self._limit_bytes

    def added(self, parcels: Sequence[Parcel]) -> None:
        """These were written, after all others."""
        self.last_id = parcels[-1].id
        self.exchanges += sum(parcel.exchanges for parcel in parcels)
        self.size += sum(len(parcel.packed) for parcel in parcels)

    def taken(self, parcels: Sequence[Parcel]) -> None:
        """These were read, and are gone."""
        self.exchanges -= sum(parcel.exchanges for parcel in parcels)
        self.size -= sum(len(parcel.packed) for parcel in parcels)
