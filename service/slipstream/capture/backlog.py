"""Counter of exchanges that the writer has written and the recorder has not read: the bound between them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.store import captured
from slipstream.store.captured import CaptureBatch
from slipstream.store.database import Database


class Backlog:
    """Exchanges in the store that wait to be read. Both sides report what they did, so that no query has to count them;
    exchanges of another sidecar are counted.

    Args:
        limit_bytes: that are enough.

    Attributes:
        exchanges: that wait.
        size: their bytes.
        owner: the id of this sidecar; those of its batches, and of those that it takes over.
        last_id: the newest batch's that it knows to be written, or what would be before the first.
        counted: nothing came but what is counted.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.owner = 0
        self.exchanges = 0
        self.size = 0
        self.last_id = 0
        self.counted = True

    async def open(self, database: Database, owner: int) -> None:
        """Take up what there is of this sidecar: what the last process left, or nothing.

        Raises:
            SQLAlchemyError: the store cannot be read.
        """
        async with database.read() as session:
            self.last_id, self.exchanges, self.size = await captured.waiting(session, owner)
        self.owner = owner

    async def recount(self, database: Database) -> None:
        """Look how much there is, of what this sidecar knows to be written.

        Raises:
            SQLAlchemyError: the store cannot be read.
        """
        before = self.owner, self.last_id, self.exchanges
        async with database.read() as session:
            found = await captured.waiting(session, self.owner, up_to=self.last_id)
        if before == (self.owner, self.last_id, self.exchanges):  # else it is of an earlier moment
            self.exchanges, self.size, self.counted = found.exchanges, found.size, True

    @property
    def full(self) -> bool:
        """Return whether enough exchanges wait."""
        return self.size >= self._limit_bytes

    def added(self, owner: int, batches: Sequence[CaptureBatch]) -> None:
        """These were written, after all others."""
        if owner == self.owner:
            self.last_id = batches[-1].id
            self.exchanges += sum(batch.exchanges for batch in batches)
            self.size += sum(len(batch.packed) for batch in batches)

    def adopted(self) -> None:
        """Some of another sidecar's are to be read here, or may be."""
        self.counted = False

    def shrunk(self, owner: int, before: CaptureBatch, after: CaptureBatch) -> None:
        """The first exchanges of a batch were read, and this is left of it."""
        if owner == self.owner:
            self.exchanges -= before.exchanges - after.exchanges
            self.size -= len(before.packed) - len(after.packed)

    def taken(self, owner: int, batches: Sequence[CaptureBatch]) -> None:
        """These were read, and are gone."""
        if owner == self.owner:
            self.exchanges -= sum(batch.exchanges for batch in batches)
            self.size -= sum(len(batch.packed) for batch in batches)
