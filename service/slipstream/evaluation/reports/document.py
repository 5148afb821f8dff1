"""The report as data: what `report.json` has, written and read back."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from slipstream.config.problems import describe
from slipstream.evaluation.reports.names import Kind, ReportError
from slipstream.evaluation.statistics import Judgement

FILE = "report.json"
_LARGEST = 128 * 1024**2
"""Bytes of a report that is read: 10,000 cases of 8 models have some 50 MB."""

_MOST_MODELS = 16
"""Models of a report that is read: two reports of eight. Each is compared with each."""

Number = Annotated[float, Field(allow_inf_nan=False)]


def _range(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] < ends[1]:
        raise ValueError("two numbers, the lower one first")
    return ends


Text = Annotated[str, Field(max_length=4096)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mean(_Part):
    """Mean of one measure of a model over the cases; the error and the interval, at the `level`, count sessions."""

    mean: Number | None
    std: Number | None
    standard_error: Number | None
    interval: tuple[Number, Number] | None
    count: int
    sessions: int


class ModelPart(_Part):
    """A model with its means.

    Attributes:
        model: the name by which its server knows it.
        version: of the policy.
        away: why nothing is said about it; null for a model that was there.
        answers: by their outcome.
        reason: why the first answer failed that did.
    """

    name: Text
    kind: Kind
    model: Text | None
    version: int | None
    away: Text | None
    reason: Text | None
    answers: dict[Text, int]
    measures: dict[Text, Mean]


class Difference(_Part):
    """Difference of a measure, `one` less `other`, over the sessions that both have.

    Attributes:
        interval: by the normal distribution, at the `level`.
        verdict: what is proven by the evidence of the sessions; null for a measure without a range.
        always: the interval of that evidence, which is wider: it holds for few sessions too, and after each of them.
    """

    difference: Number | None
    standard_error: Number | None
    interval: tuple[Number, Number] | None
    verdict: Judgement | None
    always: tuple[Number, Number] | None
    sessions: int
    cases: int


class PairPart(_Part):
    """Two models, case by case."""

    one: Text
    other: Text
    measures: dict[Text, Difference]


class Condition(_Part):
    """A condition of the command line, and whether it holds."""

    text: Text
    holds: bool
    found: Text


class CasePart(_Part):
    """A case with the values of each model, the mean over its answers; `session` names its session without telling
    it."""

    case: Text
    key: Text
    session: Text
    values: dict[Text, dict[Text, Number | None]]


class SettingsPart(_Part):
    """Settings with which the report was made.

    Attributes:
        end_to_end: how answers were scored; `digest` names that, and `range` is that of the values.
        repeat, parameters: null for two reports that were asked in different ways; then `asked` says how each was.
        level: error rate of each interval and verdict.
        against: the model that others are compared with by conditions.
    """

    source: Text
    cases_digest: Text
    repeat: int | None
    parameters: dict[str, Any] | None
    asked: Text = ""
    end_to_end: Text
    digest: Text
    range: Annotated[tuple[Number, Number], AfterValidator(_range)]
    level: Annotated[float, Field(gt=0, lt=1)]
    margin: Annotated[float, Field(gt=0, lt=1)]
    against: Text | None


class Report(_Part):
    """A report on models."""

    format: Literal["slipstream report on models, 1"] = "slipstream report on models, 1"
    slipstream: Text
    made_at: Text
    settings: SettingsPart
    models: Annotated[list[ModelPart], Field(max_length=_MOST_MODELS)]
    pairs: list[PairPart]
    conditions: list[Condition]
    cases: list[CasePart]

    @property
    def measures(self) -> list[str]:
        """Return the measures that a model has a value of, in their order."""
        return list(dict.fromkeys(name for model in self.models for name in model.measures))


def read_report(folder: Path) -> Report:
    """Read a report that was written before.

    Args:
        folder: its directory, or its `report.json`.

    Raises:
        ReportError: there is none, or it is none of this release.
    """
    path = folder / FILE if folder.is_dir() else folder
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ReportError(f"{path}: expected {_LARGEST} bytes at most, found {size}")
        read = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: expected a report; {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{path}: expected a report in JSON; {error}") from error
    try:
        return Report.model_validate(read)
    except ValidationError as error:
        lines = islice(describe(error, Report, {}), 10)
        raise ReportError("\n".join(f"{path}: {line}" for line in lines)) from error
