"""Bounds of what a command shows of long things."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """Bounds of one command; None is none.

    Attributes:
        text: characters of a text that somebody wrote.
        line: characters of an id, a name or a reason.
        messages: of a conversation, the last ones and the first.
        groups: of a task, the last ones.
    """

    text: int = 2000
    line: int = 300
    messages: int | None = 30
    groups: int | None = 10

    @classmethod
    def full(cls) -> Cut:
        """Nothing is cut but texts of a length that takes a terminal seconds to wrap: JSON has them."""
        return cls(100_000, 100_000, None, None)
