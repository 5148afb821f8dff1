"""What was measured: a number for each target, measure and round, and how rounds become one number.

What is compared is compared within a round, where both sides met the same machine, and the median is taken after that.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Results:
    """Numbers by target's key and measure's name, and what a reader must know beside them.

    Attributes:
        unavailable: by target's key, why it was not measured.
        notes: what went wrong, in the order of happening.
        busy: cores that others used during a measurement that was kept, one each.
        repeated: measurements that were thrown away because the machine was busy.
    """

    rounds: int = 0
    unavailable: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    repeated: int = 0
    _numbers: dict[tuple[str, str], dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, key: str, measure: str, turn: int, value: float) -> None:
        self._numbers[key, measure][turn] = value

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def values(self, key: str, measure: str) -> list[float]:
        """One number for each round that has one."""
        return list(self._numbers.get((key, measure), {}).values())

    def median(self, key: str, measure: str) -> float | None:
        values = self.values(key, measure)
        return statistics.median(values) if values else None

    def highest(self, key: str, measure: str) -> float | None:
        return max(self.values(key, measure), default=None)

    def spread(self, key: str, measure: str) -> float | None:
        """Half the range over the median, of at least two rounds: 0.05 is plus and minus 5%."""
        values = self.values(key, measure)
        return (max(values) - min(values)) / 2 / statistics.median(values) if len(values) > 1 else None

    def added(self, key: str, measure: str, base: str = "direct") -> float | None:
        """Median over the rounds of the difference to `base`."""
        return self._paired(key, measure, base, lambda one, other: one - other)

    def ratio(self, key: str, measure: str, base: str) -> float | None:
        """Median over the rounds of the ratio to `base`."""
        return self._paired(key, measure, base, lambda one, other: one / other)

    def _paired(self, key: str, measure: str, base: str, compare: Callable[[float, float], float]) -> float | None:
        ours, theirs = self._numbers.get((key, measure), {}), self._numbers.get((base, measure), {})
        both = [compare(ours[turn], theirs[turn]) for turn in ours if turn in theirs]
        return statistics.median(both) if both else None
