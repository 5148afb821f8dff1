"""The plan of a rollout, as it is opened: steps of share, guardrails, and what a promotion needs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from slipstream.config.units import Duration, PositiveDuration
from slipstream.http.body import Body

LARGEST_SHARE = 0.95
"""Share of the units that a version has at most, promoted or not: the others are the control that it is watched by."""

_SMALLEST = 1e-6
"""Smallest share, and smallest level: with less, they need more units than there will ever be."""

REWARD = "reward"
FEEDBACK = "feedback"

Share = Annotated[float, Field(ge=_SMALLEST, le=LARGEST_SHARE)]
"""A share of the units."""

Margin = Annotated[float, Field(ge=0, lt=1)]
"""A difference that matters, in parts of the range of the values."""


def _range(ends: list[float]) -> list[float]:
    if not 0 < ends[1] - ends[0] < math.inf:
        raise ValueError("two numbers, the lower one first")
    return ends


Ranges = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=256)],
        Annotated[list[float], Field(min_length=2, max_length=2), AfterValidator(_range)],
    ],
    Field(max_length=16),
]
"""The least and the greatest value of components of the reward, by their names: values beyond count as these."""


class Guardrail(Body):
    """A bound on the loss of one value."""

    margin: Margin = 0.05


class LatencyGuardrail(Guardrail):
    """A bound on the part of units that wait longer than `bound` for a first byte."""

    bound: PositiveDuration = 10.0


class Guardrails(Body):
    """The values that a version must not harm. Null turns one off."""

    failure: Guardrail | None = Guardrail(margin=0.02)
    latency: LatencyGuardrail | None = LatencyGuardrail()
    feedback: Guardrail | None = Guardrail()
    format: Guardrail | None = None
    reward: Guardrail | None = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if not self.on:
            raise ValueError("one guardrail or more, found none")
        return self

    @property
    def on(self) -> dict[str, Guardrail]:
        """The guardrails that are on, by name."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: guardrail for name, guardrail in named.items() if guardrail is not None}


class LiveScoring(Body):
    """Scoring of answers that users got.

    Attributes:
        share: part of the units that are scored, whichever arm they are in.
        calls_per_hour: answers that are scored in any hour; null for no limit.
        references: the tasks have their references, so that calculators which else take production's answer for the
            truth compare with those; a task without them is not scored.
    """

    share: float = Field(default=1.0, gt=0, le=1)
    calls_per_hour: Annotated[int, Field(ge=1)] | None = 1000
    references: bool = False


class Plan(Body):
    """The plan of a rollout.

    Attributes:
        steps: shares of the units, rising.
        min_units: units of each arm that a step needs, at least.
        min_time: seconds that a step takes, at least.
        grace: seconds after a unit's last call until its value is final.
        longest_session: seconds after a unit's first call until its value is final, whatever follows.
        objective: the value that has to be better for a promotion: `reward`, `reward.COMPONENT` or `feedback`.
        objective_margin: by how much, in parts of the range.
        ranges: of components of the reward. Opening a rollout adds those of its components that their calculators say.
        level: the error rate that is accepted.
        advance: `no_harm` goes on while no harm is proven; `not_worse` once each guardrail's loss is refuted.
        approval: `automatic`, or `by_hand`: then nothing but a roll back happens by itself.
    """

    steps: Annotated[list[Share], Field(min_length=1, max_length=20)] = Field(
        default_factory=lambda: [0.05, 0.2, 0.5, LARGEST_SHARE]
    )
    min_units: int = Field(default=30, ge=1, le=1_000_000)
    min_time: Duration = 600.0
    grace: PositiveDuration = 300.0
    longest_session: PositiveDuration = 3600.0
    guardrails: Guardrails = Guardrails()
    objective: str = Field(default=FEEDBACK, pattern=r"^(feedback|reward(\..+)?)$", max_length=256)
    objective_margin: Margin = 0.0
    ranges: Ranges = Field(default_factory=dict)
    level: float = Field(default=0.05, ge=_SMALLEST, lt=1)
    advance: Literal["no_harm", "not_worse"] = "no_harm"
    approval: Literal["automatic", "by_hand"] = "automatic"
    scoring: LiveScoring = LiveScoring()

    @field_validator("steps")
    @classmethod
    def _rise(cls, steps: list[float]) -> list[float]:
        if any(after <= before for before, after in pairwise(steps)):
            raise ValueError("shares that rise from step to step")
        return steps

    @property
    def component(self) -> str | None:
        """Return the component of the reward that the objective names."""
        return self.objective.partition(".")[2] or None

    @property
    def scores(self) -> bool:
        """Return whether live answers have to be scored for it."""
        return self.objective != FEEDBACK or self.guardrails.format is not None or self.guardrails.reward is not None

    @property
    def longest_wait(self) -> float:
        """Return the longest time from a unit's first call to its final value, in seconds."""
        return max(self.longest_session, self.grace)
