"""The section `feedback` of sidecar.yaml: how much one key may teach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from slipstream.settings.section import Section


class KeyFeedback(Section):
    """Bounds of the feedback of one key.

    Attributes:
        rate: answers, tasks and sessions that it may name in any hour; None for no limit.
        weight: part of a reward's distance from the middle of `rewards.clip` that counts; with 0 no reward is made of
            its feedback.
    """

    rate: Annotated[int | None, Field(ge=1)] = None
    weight: float = Field(default=1.0, ge=0, le=1)

    def weighted(self, reward: float, low: float, high: float) -> float:
        """The reward that counts."""
        middle = (low + high) / 2
        return middle + self.weight * (reward - middle)


class Feedback(Section):
    """Bounds of feedback: those of each key, and others for keys by their names."""

    per_key: KeyFeedback = KeyFeedback()
    keys: Mapping[str, KeyFeedback] = Field(default_factory=dict)

    def of(self, key: str | None) -> KeyFeedback:
        """The bounds of a key; those of each key where no key is asked for."""
        return self.per_key if key is None else self.keys.get(key, self.per_key)
