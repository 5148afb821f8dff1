"""Keys and values of tokens that were read before, for prompts that begin with the same ones.

The calls of an agent share its system message and its tools, the runs of a group share all of their prompt, and an
agent's next step asks with the conversation so far (prefix caching as in vLLM, with whole sequences for its blocks).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

_MOST_ENTRIES = 256  # comparing a prompt with all of them takes 1 ms


class PrefixCache:
    """The newest sequences with their keys and values, at most 256 of them in at most `most_bytes`.

    A state has the shape (layers, 2 for key and value, 1, heads, tokens, head size).
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._entries: list[tuple[NDArray[np.int64], Tensor]] = []  # oldest first

    def __len__(self) -> int:
        return len(self._entries)

    def longest(self, tokens: Sequence[int]) -> Tensor | None:
        """Return the state of the longest known beginning of `tokens`, with as many tokens as that has."""
        wanted = np.array(tokens, np.int64)
        found = max(self._entries, key=lambda entry: _common(entry[0], wanted), default=None)
        shared = 0 if found is None else _common(found[0], wanted)
        return None if found is None or shared == 0 else found[1][..., :shared, :]

    def add(self, tokens: Sequence[int], state: Tensor) -> None:
        """Takes over a state; drops those of its beginnings, and the oldest while there are too many bytes."""
        added = np.array(tokens, np.int64)
        self._entries = [entry for entry in self._entries if _common(entry[0], added) < len(entry[0])]
        self._entries.append((added, state))
        while len(self._entries) > _MOST_ENTRIES or sum(held.nbytes for _, held in self._entries) > self._most_bytes:
            del self._entries[0]

    def clear(self) -> None:
        self._entries.clear()


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Return how many tokens at their start are equal."""
    length = min(len(one), len(other))
    differs = np.flatnonzero(one[:length] != other[:length])
    return int(differs[0]) if len(differs) else length
