"""Rewards that are a weighted sum of parts, some of them penalties, brought into [0, 1].

Group algorithms compare the rewards of a group, so that only differences count; but the sidecar cuts rewards to
`rewards.clip`, and a sum such as 3 for a right answer and -0.1 for a step would lose all differences above 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.rewards.calculator import Reward


@dataclass(frozen=True)
class PartWeights:
    """The weights of parts.

    Attributes:
        weights: of each part, negative for a penalty.
        most: the most that a part counts; by default 1. The least is 0.

    Raises:
        ValueError: no weight is other than 0.
    """

    weights: Mapping[str, float]
    most: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not any(self.weights.values()):
            raise ValueError("weights: expected one other than 0")

    def worth(self, parts: Mapping[str, float]) -> float:
        """Return the weighted sum of the parts; one that is not there counts 0."""
        return sum(weight * self._counted(name, parts) for name, weight in self.weights.items())

    def reward(self, parts: Mapping[str, float]) -> Reward:
        """Return the sum as a part of its range, in [0, 1], with the parts and the sum itself (`worth`)."""
        ends = [weight * self.most.get(name, 1.0) for name, weight in self.weights.items()]
        least, most = sum(min(end, 0.0) for end in ends), sum(max(end, 0.0) for end in ends)
        worth = self.worth(parts)
        breakdown: dict[str, float | None] = {name: self._counted(name, parts) for name in self.weights}
        return Reward((worth - least) / (most - least), {**breakdown, "worth": worth})

    def _counted(self, name: str, parts: Mapping[str, float]) -> float:
        return min(max(float(parts.get(name, 0.0)), 0.0), self.most.get(name, 1.0))
