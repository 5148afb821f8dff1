"""The `agent` calculator: the usual reward of a tool-calling agent, in five components."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from slipstream.rewards.calculator import UNIT, Bounds, NoBasis, PlainCalculator, Reward, weighted_mean
from slipstream.rewards.calculators.agreement import Agreement
from slipstream.rewards.calculators.form import Format
from slipstream.rewards.calculators.reference import Contains
from slipstream.rewards.calculators.tools import Efficiency, Timing, ToolCalls
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run

DEFAULT_WEIGHTS = {
    "task_completion": 0.4,
    "tool_accuracy": 0.25,
    "efficiency": 0.15,
    "timing_quality": 0.10,
    "format_compliance": 0.10,
}


class TaskCompletion(PlainCalculator):
    """1 if the answer contains the reference; without a reference, the agreement with production's answer.

    Where production's answer is hidden, so that versions can be compared with production, there is no basis then:
    silence would agree with it.
    """

    bounds: ClassVar[Bounds | None] = UNIT

    key: str = "reference"

    def calculate(self, run: Run) -> float:
        try:
            return Contains(key=self.key).calculate(run)
        except NoBasis:
            if run.production is not None and not run.production.answer.get("choices"):
                raise
            return Agreement().calculate(run)


@calculator("agent")
class Agent(PlainCalculator):
    """Five components at their default weights, each left out where the task gives no basis for it.

    For other parameters or weights, list the calculators one by one and name their `component`.
    """

    bounds: ClassVar[Bounds | None] = ToolCalls.bounds  # alone, where no other component has a basis
    interprets: ClassVar[bool] = True

    key: Annotated[str, Field(min_length=1)] = "reference"

    def bounds_of(self, part: str) -> Bounds | None:
        name, _, below = part.partition(".")
        component = self._components().get(name)
        return super().bounds_of(part) if component is None else component.bounds_of(below)

    def calculate(self, run: Run) -> Reward:
        components = self._components().items()
        return weighted_mean((name, DEFAULT_WEIGHTS[name], _judged(each, run)) for name, each in components)

    def _components(self) -> dict[str, PlainCalculator]:
        return {
            "task_completion": TaskCompletion(key=self.key),
            "tool_accuracy": ToolCalls(),
            "efficiency": Efficiency(),
            "timing_quality": Timing(),
            "format_compliance": Format(),
        }


def _judged(calculator: PlainCalculator, run: Run) -> Reward | None:
    try:
        outcome = calculator.calculate(run)
    except NoBasis:
        return None
    return outcome if isinstance(outcome, Reward) else Reward(outcome)
