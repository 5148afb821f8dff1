"""Keys and values of answers that have ended, for whoever goes on from them.

An agent's next step asks with the same conversation and a little more behind it. Where nothing of it is being answered
any more, all of it would be read again.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from slipstream.embedded.families import WORTH, Prompt


class Finished:
    """The newest of them, by their tokens, in at most `most_bytes`.

    A room has the shape (layers, 2 for key and value, 1, heads, tokens, head size).
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._rooms: dict[Prompt, Tensor] = {}

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self._rooms)

    def __getitem__(self, tokens: Prompt) -> Tensor:
        return self._rooms[tokens]

    def __contains__(self, tokens: Prompt) -> bool:
        return tokens in self._rooms

    def add(self, tokens: Prompt, room: Tensor) -> None:
        """Takes a room of its own, and lets go of those that it goes on from, and of the oldest ones."""
        if len(tokens) < WORTH or room.nbytes > self._most_bytes:
            return
        for begun in [other for other in self._rooms if tokens[: len(other)] == other]:
            self._drop(begun)
        while self._bytes + room.nbytes > self._most_bytes:
            self._drop(next(iter(self._rooms)))
        self._rooms[tokens] = room
        self._bytes += room.nbytes

    def clear(self) -> None:
        self._rooms.clear()
        self._bytes = 0

    def _drop(self, tokens: Prompt) -> None:
        self._bytes -= self._rooms.pop(tokens).nbytes
