"""The base of reward calculators, and how the rewards of several become one.

A calculator's parameters are a pydantic model, one class per name that can stand under `rewards.calculators`. A
calculator without any state of its own is that same model (`PlainCalculator`); the others are built from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from slipstream.errors import ScoringError
from slipstream.trajectory import Run

Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward and what it is made of.

    Attributes:
        value: finite.
        breakdown: the value of each component, `component.part` for the parts of one; None for a component that
            the task gives no basis for, which then counts for nothing.
    """

    value: float
    breakdown: Mapping[str, float | None] = field(default_factory=dict)


Outcome = float | Reward


class RewardCalculator(Protocol):
    """Anything that gives a run a reward; a plain or an async method."""

    def calculate(self, run: Run) -> Outcome | Awaitable[Outcome]: ...


class BuiltCalculator(RewardCalculator, Protocol):
    """A calculator that is ready for work, and may hold connections, threads or processes until `aclose`."""

    async def aclose(self) -> None: ...


class NoBasis(ScoringError):
    """The task holds nothing that a calculator could compare with, such as a reference.

    Only the task may decide this, never the policy's answer: the runs of a group then have the same components and
    their rewards can be compared.
    """


class Parameters(BaseModel, ABC):
    """Parameters that every calculator accepts.

    Attributes:
        weight: its share in the weighted mean; without it the default of its component.
        component: its name in the breakdown; without it the calculator's name.
        optional: leave it out of the mean for tasks that give it no basis, instead of failing the run's scoring.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    component: Annotated[str, Field(min_length=1)] | None = None
    optional: bool = False

    @abstractmethod
    def build(self) -> BuiltCalculator:
        """The calculator. Raises ValueError where the parameters turn out wrong only now."""


class PlainCalculator(Parameters):
    """A calculator that needs nothing but its parameters and the run."""

    def build(self) -> Self:
        return self

    @abstractmethod
    def calculate(self, run: Run) -> Outcome: ...

    async def aclose(self) -> None:
        """Nothing to close."""


def weighted_mean(parts: Iterable[tuple[str, float, Reward | None]]) -> Reward:
    """The mean of (component, weight, reward), by weight; a reward of None is left out and stays in the breakdown.

    Raises:
        NoBasis: every reward is None.
    """
    breakdown: dict[str, float | None] = {}
    total = weights = 0.0
    for name, weight, reward in parts:
        breakdown[name] = None if reward is None else reward.value
        if reward is not None:
            breakdown |= {f"{name}.{part}": value for part, value in reward.breakdown.items()}
            total += weight * reward.value
            weights += weight
    if not weights:
        raise NoBasis(f"no component has a basis on this task: {', '.join(breakdown)}")
    return Reward(total / weights, breakdown)
