"""The base of reward calculators, and how the rewards of several become one.

A calculator's parameters are a pydantic model, one class per name that can stand under `rewards.calculators`. A
calculator without any state of its own is that same model (`PlainCalculator`); the others are built from it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field

from slipstream.errors import ScoringError
from slipstream.isolation import Isolation, Pool
from slipstream.trajectory import Run

Number = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Bounds = tuple[float, float]
"""The least and the greatest value of a component or of a part of it."""

UNIT: Bounds = 0.0, 1.0


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
        bounds: of its value; None if they are not known.
    """

    bounds: ClassVar[Bounds | None] = None

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    component: Annotated[str, Field(min_length=1)] | None = None
    optional: bool = False

    def bounds_of(self, part: str) -> Bounds | None:
        """The bounds of a part in the breakdown, or with an empty name of the value itself; None if they are not
        known."""
        return None if part else self.bounds

    @abstractmethod
    def build(self, isolation: Isolation) -> BuiltCalculator:
        """The calculator. Raises ValueError where the parameters turn out wrong only now."""


class PlainCalculator(Parameters):
    """A calculator that needs nothing but its parameters and the run.

    Attributes:
        interprets: it follows content: a schema, a pattern, a comparison of everything with everything. It is then
            asked in a process of its own, which is killed after `deadline`. The others take a time in proportion to
            the text.
        deadline: seconds; None for those of `isolation.content_timeout`. It needs some milliseconds.
    """

    interprets: ClassVar[bool] = False

    @property
    def deadline(self) -> float | None:
        return None

    def build(self, isolation: Isolation) -> BuiltCalculator:
        return _Interpreter(self, isolation.content) if self.interprets else self

    @abstractmethod
    def calculate(self, run: Run) -> Outcome: ...

    def prepare(self) -> None:
        """Load in the process what would else count against the time of the first run."""

    async def aclose(self) -> None:
        """Nothing to close."""


class _Interpreter:
    """A plain calculator that is asked in a process of its own."""

    def __init__(self, calculator: PlainCalculator, pool: Pool) -> None:
        self._calculator = calculator
        self._pool = pool
        pool.prepare(calculator.prepare)

    async def calculate(self, run: Run) -> Outcome:
        outcome: Outcome = await self._pool.ask(self._calculator.calculate, run, timeout=self._calculator.deadline)
        return outcome

    async def aclose(self) -> None:
        """Nothing to close."""


def checked(outcome: Any) -> Reward:
    """The outcome as a reward of plain finite floats. Raises ScoringError."""
    if not isinstance(outcome, Reward):
        return Reward(_number(outcome, "the reward"))
    parts = {
        str(name): None if value is None else _number(value, f"breakdown.{name}")
        for name, value in outcome.breakdown.items()
    }
    return Reward(_number(outcome.value, "the reward"), parts)


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ScoringError(f"{what} is no number but {type(value).__name__}")
    if not math.isfinite(value):
        raise ScoringError(f"{what} is {value}, which is not finite")
    return float(value)


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
