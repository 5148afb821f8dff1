"""Calculators that look at the text of the policy's last answer alone: `regex`, `json_schema`, `length`."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

import regex
from pydantic import AfterValidator, Field, model_validator

from slipstream.config.units import PositiveDuration
from slipstream.errors import ScoringError
from slipstream.rewards.calculator import UNIT, Bounds, Number, PlainCalculator
from slipstream.rewards.registry import calculator
from slipstream.rewards.schemas import checked_schema, conforms, no_json_number
from slipstream.trajectory import Run

_FENCED = regex.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", regex.DOTALL | regex.IGNORECASE)
_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]|[^\W\p{Han}\p{Hiragana}\p{Katakana}]+")


def _pattern(text: str) -> str:
    try:
        regex.compile(text)
    except regex.error as error:
        raise ValueError(f"a regular expression ({error})") from error
    return text


@calculator("regex")
class Regex(PlainCalculator):
    """1 where the pattern is found in the answer (`search`), or where the whole answer fits it (`full`); otherwise 0.

    The `regex` package runs it, as it is the one that reads `\\p{Han}`.
    """

    bounds: ClassVar[Bounds | None] = UNIT
    interprets: ClassVar[bool] = True

    pattern: Annotated[str, AfterValidator(_pattern)]
    match: Literal["search", "full"] = "search"
    ignore_case: bool = False
    timeout: PositiveDuration = 1.0

    @property
    def deadline(self) -> float:
        return self.timeout

    def calculate(self, run: Run) -> float:
        compiled = regex.compile(self.pattern, regex.IGNORECASE if self.ignore_case else 0)
        find = compiled.fullmatch if self.match == "full" else compiled.search
        return float(find(run.text) is not None)


@calculator("json_schema")
class JsonSchema(PlainCalculator):
    """1 where the answer is JSON that is valid by the schema, otherwise 0."""

    bounds: ClassVar[Bounds | None] = UNIT
    interprets: ClassVar[bool] = True

    schema_: Annotated[dict[str, Any], AfterValidator(checked_schema)] = Field(alias="schema")
    allow_fence: bool = False

    def calculate(self, run: Run) -> float:
        text = run.text
        if self.allow_fence and (fenced := _FENCED.fullmatch(text)):
            text = fenced[1]
        try:
            value = json.loads(text, parse_constant=no_json_number)
        except (ValueError, RecursionError):
            return 0.0
        return float(conforms(value, self.schema_))


@calculator("length")
class Length(PlainCalculator):
    """1 within [min, max], falling in a straight line to 0 outside.

    Words are runs of letters and digits, and each Chinese or Japanese character; tokens are those that the Explorer
    counted in `usage`. Without a `falloff` the line reaches 0 at nothing below `min` and at twice `max` above.
    """

    bounds: ClassVar[Bounds | None] = UNIT

    min: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    max: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    unit: Literal["characters", "words", "tokens"] = "characters"
    falloff: Annotated[Number, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _range(self) -> Self:
        if not self.min and self.max is None:
            raise ValueError("min, max, or both")
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min not above max (min {self.min:g}, max {self.max:g})")
        return self

    def calculate(self, run: Run) -> float:
        length = self._measure(run)
        if length < self.min:
            return max(0.0, 1 - (self.min - length) / (self.falloff or self.min))
        if self.max is not None and length > self.max:
            return max(0.0, 1 - (length - self.max) / (self.falloff or self.max))
        return 1.0

    def _measure(self, run: Run) -> float:
        if self.unit == "characters":
            return len(run.text)
        if self.unit == "words":
            return sum(1 for _ in _WORD.finditer(run.text))
        tokens = run.calls[-1].usage.get("completion_tokens")
        if not isinstance(tokens, int):
            raise ScoringError("the answer has no usage.completion_tokens")
        return tokens
