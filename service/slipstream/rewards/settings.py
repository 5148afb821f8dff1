"""The section `rewards`: calculators by name, and how their rewards become one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from slipstream.config.units import Duration
from slipstream.rewards.calculator import Parameters
from slipstream.rewards.calculators.agent import DEFAULT_WEIGHTS
from slipstream.rewards.calculators.judge import Judge
from slipstream.rewards.registry import CALCULATORS

# A field for each calculator, so that an error names the key below the calculator's.
_FIELDS: dict[str, Any] = {name: (parameters | None, None) for name, parameters in CALCULATORS.items()}
_CalculatorFields = create_model("_CalculatorFields", **_FIELDS)


class CalculatorSpec(_CalculatorFields):  # type: ignore[misc, valid-type]
    """One calculator: a mapping with exactly one key, its name, whose value are its parameters.

    The bare name, or a name without a value, stands for the calculator with its defaults.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {value: {}}
        if isinstance(value, dict):
            return {name: {} if parameters is None else parameters for name, parameters in value.items()}
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"exactly one calculator of {known}; found {', '.join(given) or 'none'}")
        return self

    @property
    def name(self) -> str:
        return next(name for name in CALCULATORS if getattr(self, name) is not None)

    @property
    def parameters(self) -> Parameters:
        parameters: Parameters = getattr(self, self.name)
        return parameters

    @property
    def component(self) -> str:
        return self.parameters.component or self.name

    @property
    def weight(self) -> float:
        """As configured, or the default weight of an agent reward's component, or 1."""
        return self.parameters.weight or DEFAULT_WEIGHTS.get(self.component, 1.0)


def _different_components(calculators: tuple[CalculatorSpec, ...]) -> tuple[CalculatorSpec, ...]:
    names = Counter(spec.component for spec in calculators)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"a `component` of its own for each calculator; found more than one {', '.join(twice)}")
    return calculators


def _range(clip: tuple[float, float]) -> tuple[float, float]:
    if not (math.isfinite(clip[0]) and math.isfinite(clip[1]) and clip[0] < clip[1]):
        raise ValueError("two finite numbers, the lower one first")
    return clip


class RewardsSettings(BaseModel):
    """The section `rewards`.

    Attributes:
        calculators: what gives a run its reward, combined by weight; nothing can be scored while it is empty.
        clip: the range that a reward is cut to, lower and upper.
        grace: seconds that a run waits for feedback before the `feedback` calculator takes its default.
        judge_calls_per_hour: questions to judges in any hour, of all sidecars on one store together; None for no limit.
            A run is shown to all judges or to none.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    calculators: Annotated[tuple[CalculatorSpec, ...], AfterValidator(_different_components)] = ()
    clip: Annotated[tuple[float, float], AfterValidator(_range)] = (0.0, 1.0)
    grace: Duration = 0.0
    judge_calls_per_hour: Annotated[int, Field(ge=1)] | None = None

    @field_validator("judge_calls_per_hour")
    @classmethod
    def _enough_for_a_run(cls, value: int | None, info: ValidationInfo) -> int | None:
        judges = _judges(info.data.get("calculators", ()))
        if value is not None and value < judges:
            raise ValueError(f"an integer from {judges} on, one for each judge that is asked about a run")
        return value

    @property
    def judging(self) -> tuple[str, ...]:
        """Return the components that are to tell answers from each other: all but those that are constants."""
        return tuple(spec.component for spec in self.calculators if spec.name != "constant")

    @property
    def judges(self) -> int:
        """Return how many calculators ask a judge."""
        return _judges(self.calculators)


def _judges(calculators: Sequence[CalculatorSpec]) -> int:
    return sum(isinstance(spec.parameters, Judge) for spec in calculators)
