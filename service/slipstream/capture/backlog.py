"""How much the Intake has written that the Recorder has not read yet: the bound between them."""

from __future__ import annotations

from slipstream.store import captured
from slipstream.store.database import Database


class Backlog:
    """What waits in the store to be read. Both sides say what they did, so that nobody has to count the rows.

    Args:
        limit_bytes: of bodies that are enough.

    Attributes:
        rows: exchanges that wait.
        size: bytes of their bodies.
        last_id: the newest row's, or what would be before the first.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.rows = 0
        self.size = 0
        self.last_id = 0

    async def open(self, database: Database) -> None:
        """Take up what the last process left.

        Raises:
            SQLAlchemyError: the store cannot be read.
        """
        async with database.read() as session:
            self.last_id, self.rows, self.size = await captured.waiting(session)

    @property
    def full(self) -> bool:
        return self.size >= self._limit_bytes

    def added(self, rows: list[captured.Row]) -> None:
        """These were written, after all others."""
        self.last_id = rows[-1][0]
        self.rows += len(rows)
        self.size += _size(rows)

    def taken(self, rows: list[captured.Row]) -> None:
        """These were read, and are gone."""
        self.rows -= len(rows)
        self.size -= _size(rows)


def _size(rows: list[captured.Row]) -> int:
    return sum(len(request) + len(answer) for _, _, request, answer in rows)
