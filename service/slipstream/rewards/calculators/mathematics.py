"""The `math` calculator: mathematical equality with a reference, decided by math-verify."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from slipstream.config.units import PositiveDuration
from slipstream.errors import ScoringError
from slipstream.rewards.calculator import UNIT, Bounds, PlainCalculator
from slipstream.rewards.calculators.reference import reference_texts
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run


@calculator("math")
class Math(PlainCalculator):
    """1 where the answer equals the reference as mathematics, otherwise 0: 1/2, 0.5 and \\frac{1}{2} are the same."""

    bounds: ClassVar[Bounds | None] = UNIT
    interprets: ClassVar[bool] = True

    key: Annotated[str, Field(min_length=1)] = "reference"
    timeout: PositiveDuration = 5.0

    @property
    def deadline(self) -> float:
        return self.timeout

    def prepare(self) -> None:
        from slipstream.rewards.mathematics import check

        check(["1"], "$1$")

    def calculate(self, run: Run) -> float:
        from slipstream.rewards.mathematics import check

        equal = check(reference_texts(run, self.key), run.text)
        if equal is None:
            raise ScoringError(f"metadata.{self.key} cannot be read as mathematics")
        return float(equal)
