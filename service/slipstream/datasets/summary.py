"""Counts and distributions of rows that pass by, in constant memory."""

from __future__ import annotations

import random
from collections import Counter

from slipstream.datasets.manifest import Counts, Spread
from slipstream.datasets.row import Row

SAMPLE = 4096
"""Values that quantiles are taken from: they are off by about 1.5 percentage points at most (the square root of
1 / SAMPLE)."""
_NAMES = 200
"""Names that are counted apart: models and labels are named by agents, who may name as many as they like."""
_LENGTH = 200
"""Characters of such a name."""
OTHERS = "(others)"


class Summary:
    """Counts rows and their distributions."""

    def __init__(self, splits: tuple[str, ...], seed: int) -> None:
        self._rows = dict.fromkeys(splits, 0)
        self._sources: Counter[str] = Counter()
        self._models: Counter[str] = Counter()
        self._labels: Counter[str] = Counter()
        drawn = random.Random(seed)  # noqa: S311 - nothing is kept secret by it
        self._rewards, self._rejected, self._characters, self._messages, self._tools = (
            _Values(drawn) for _ in range(5)
        )

    def add(self, split: str, row: Row, characters: int) -> None:
        """Count a row whose line is so long."""
        origin = row.provenance
        self._rows[split] += 1
        self._sources[origin.source] += 1
        for model in origin.models:
            _count(self._models, model)
        for label in origin.labels:
            _count(self._labels, label)
        of_answers = (self._rewards,) if row.rejected is None else (self._rewards, self._rejected)
        for values, reward in zip(of_answers, origin.rewards, strict=False):
            if reward is not None:
                values.add(reward)
        self._characters.add(characters)
        self._messages.add(len(row.prompt) + (1 if row.rejected is None else 2))
        self._tools.add(len(row.tools))

    def counts(self) -> Counts:
        """Return what was counted."""
        return Counts(
            rows=self._rows,
            sources=dict(self._sources.most_common()),
            models=dict(self._models.most_common()),
            labels=dict(self._labels.most_common()),
            rewards=self._rewards.spread(),
            rejected_rewards=self._rejected.spread(),
            characters=self._characters.spread(),
            messages=self._messages.spread(),
            tools=self._tools.spread(),
        )


class _Values:
    """Values by reservoir sampling (algorithm R: Vitter, 1985)."""

    def __init__(self, drawn: random.Random) -> None:
        self._drawn = drawn
        self._sample: list[float] = []
        self._count = 0
        self._sum = 0.0
        self._least = self._most = 0.0

    def add(self, value: float) -> None:
        self._least = value if not self._count else min(self._least, value)
        self._most = value if not self._count else max(self._most, value)
        self._count += 1
        self._sum += value
        if len(self._sample) < SAMPLE:
            self._sample.append(value)
        elif (place := self._drawn.randrange(self._count)) < SAMPLE:
            self._sample[place] = value

    def spread(self) -> Spread | None:
        if not self._count:
            return None
        ordered = sorted(self._sample)
        low, lower, middle, upper, high = (ordered[int(share * (len(ordered) - 1))] for share in _SHARES)
        return Spread(
            count=self._count,
            mean=self._sum / self._count,
            least=self._least,
            most=self._most,
            quantiles=(low, lower, middle, upper, high),
        )


_SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


def _count(names: Counter[str], name: str) -> None:
    name = name[:_LENGTH].encode(errors="replace").decode()  # half of a surrogate pair cannot be written into a card
    names[name if name in names or len(names) < _NAMES else OTHERS] += 1
