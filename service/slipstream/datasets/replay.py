"""Rows of earlier data sets that are trained on again, so that what they taught is kept (rehearsal: A. Robins,
"Catastrophic forgetting, rehearsal and pseudorehearsal", 1995)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from slipstream.datasets.config import Replay
from slipstream.datasets.row import Row

T = TypeVar("T")


class Reservoir(Generic[T]):
    """A sample of everything that was added, each item as likely as any other (J. Vitter, "Random sampling with a
    reservoir", algorithm R, 1985).

    Args:
        size: items that are kept at most.
        seed: of what is drawn.

    Attributes:
        items: those that are kept.
        seen: how many were added.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.items: list[T] = []
        self.seen = 0
        self._size = size
        self._drawn = random.Random(seed)  # noqa: S311 - a sample, no secret

    def add(self, item: T) -> None:
        """Keep an item in the place of another one, or do not keep it."""
        self.seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif (place := self._drawn.randrange(self.seen)) < self._size:
            self.items[place] = item


def mixed(new: Sequence[T], kept: Sequence[T], ratio: float, seed: int = 0) -> list[T]:
    """Mix kept items into new ones, and shuffle all. Each item is taken once at most, so that of few kept items the
    share is smaller than the ratio.

    Args:
        ratio: share of the result that is kept ones, from 0 to below 1.
    """
    drawn = random.Random(seed)  # noqa: S311 - a sample, no secret
    wanted = round(len(new) * ratio / (1 - ratio))
    both = [*new, *drawn.sample(kept, min(wanted, len(kept)))]
    drawn.shuffle(both)
    return both


def with_replay(
    new: Sequence[Row], earlier: Iterable[Row], replay: Replay, held_out: Iterable[str] = (), seed: int = 0
) -> list[Row]:
    """Mix rows of earlier data sets into those of a new one.

    Left out are earlier rows that teach the same as a new one or as each other, that are of another kind, and those of
    sessions that are held out now: a model would be evaluated on what it was trained on.

    Args:
        earlier: training rows of `replay.datasets`; read once, and never all in memory.
        held_out: sessions that are held out, as `Provenance.session` of the earlier rows has them: of rows that were
            read from files, their hashes.
    """
    if not new:
        return []
    kind, known, kept_back = new[0].kind, {row.digest for row in new}, set(held_out)
    buffer: Reservoir[Row] = Reservoir(replay.buffer, seed)
    for row in earlier:
        if row.kind is not kind or row.provenance.session in kept_back or (digest := row.digest) in known:
            continue
        known.add(digest)
        buffer.add(row)
    return mixed(new, buffer.items, replay.ratio, seed)
