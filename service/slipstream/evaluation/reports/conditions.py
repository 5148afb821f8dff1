"""Conditions on a report, for continuous integration: what has to hold, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slipstream.evaluation.reports import wording
from slipstream.evaluation.reports.document import Condition, Difference, ModelPart, PairPart
from slipstream.evaluation.reports.measures import MEASURES, named
from slipstream.evaluation.reports.names import ReportError


class Wanted(NamedTuple):
    """Conditions that have to hold.

    Attributes:
        least: the least mean of some measures.
        not_worse: measures by which no model may be worse than the one that it is compared with by its whole interval.
        margin: in the unit of the measure: being worse by so much is allowed.
    """

    least: Mapping[str, float]
    not_worse: Sequence[str]
    margin: float


def least_of(texts: Sequence[str]) -> dict[str, float]:
    """Read `METRIC=VALUE`.

    Raises:
        ReportError: a text is no such condition.
    """
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        measure = named(name.strip(), "--fail-under")
        if not MEASURES[measure].bounded:
            raise ReportError(f"--fail-under: expected a measure of which more is better, found {measure}")
        try:
            found[measure] = float(value)
        except ValueError:
            found[measure] = float("nan")
        if not abs(found[measure]) < float("inf"):
            raise ReportError(f"--fail-under: expected METRIC=NUMBER, found {text[:100]!r}")
    return found


def judged(
    wanted: Wanted, models: Sequence[ModelPart], pairs: Sequence[PairPart], against: str | None
) -> list[Condition]:
    """Judge conditions. One that cannot be judged does not hold: a gate that opens by itself is none.

    Args:
        against: the model that others are compared with; it has to meet no condition itself.
    """
    found = []
    others = [model for model in models if model.name != against]
    for model in others:
        for measure, least in wanted.least.items():
            mean = model.measures.get(measure)
            value = None if mean is None else mean.mean
            text = f"{measure} of {model.name}: {least:g} or more"
            found.append(Condition(text=text, holds=value is not None and value >= least, found=_mean(value, model)))
        for measure in wanted.not_worse:
            less = _difference(pairs, model.name, against, measure)
            text = f"{measure} of {model.name}: not worse than {against}" + (
                f" by more than {wanted.margin:g}" if wanted.margin else ""
            )
            holds = less is not None and less[1] >= -wanted.margin
            words = "no value" if less is None else f"{less[0]:+.3f} to {less[1]:+.3f}"
            found.append(Condition(text=text, holds=holds, found=words))
    return found


def _mean(value: float | None, model: ModelPart) -> str:
    if value is not None:
        return f"{value:.3f}"
    return "no value" if model.away is None else f"away: {wording.shown(model.away)}"


def _difference(pairs: Sequence[PairPart], one: str, other: str | None, measure: str) -> tuple[float, float] | None:
    """The interval of one model less another, in whichever order they were compared; None without a session of both."""
    for pair in pairs:
        found: Difference | None = pair.measures.get(measure)
        if found is None or found.interval is None or not found.sessions:
            continue
        low, high = found.interval
        if (pair.one, pair.other) == (one, other):
            return low, high
        if (pair.one, pair.other) == (other, one):
            return -high, -low
    return None
