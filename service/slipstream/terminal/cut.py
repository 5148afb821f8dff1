"""Bounds of what a command shows of long things."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cut:
    """Bounds; None is none.

    Attributes:
        text: characters of a text that somebody wrote.
        line: characters of an id, a name or a reason.
        messages: of a conversation, the last ones and the first.
        groups: of a task, the last ones.
    """

    text: int | None = 2000
    line: int | None = 300
    messages: int | None = 30
    groups: int | None = 10

    @classmethod
    def none(cls) -> Cut:
        """Nothing is cut."""
        return cls(None, None, None, None)
