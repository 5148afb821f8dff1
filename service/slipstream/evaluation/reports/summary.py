"""Means of models, and models compared case by case, from the values of each case.

The statistics are those of E. Miller, "Adding Error Bars to Evals" (arXiv:2411.00640): standard errors count sessions,
whose cases resemble each other, and two models are compared by the differences of the same cases.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from statistics import NormalDist

from slipstream.evaluation.reports.document import CasePart, Difference, Mean, PairPart
from slipstream.evaluation.reports.measures import MEASURES
from slipstream.evaluation.statistics import judged, paired, summed

_DIGITS = 6


def mean_of(cases: Sequence[CasePart], model: str, measure: str, level: float) -> Mean:
    """Return the mean of a measure of a model, over the cases that have a value."""
    values = _values(cases, model, measure)
    sessions = {case.key: case.session for case in cases}
    found = summed([(sessions[key], value) for key, value in values.items()])
    return Mean(**found, interval=_normal(found["mean"], found["standard_error"], level))


def difference_of(
    cases: Sequence[CasePart],
    one: str,
    other: str,
    measure: str,
    *,
    width: float,
    margin: float,
    level: float,
) -> Difference:
    """Compare two models by one measure.

    Args:
        width: of the range of its values; 0 for a measure without one.
        margin: size of a difference that matters, in parts of the range.

    Returns:
        The difference of `one` less `other`, in the unit of the measure.
    """
    sessions: dict[str, Hashable] = {case.key: case.session for case in cases}
    values = _values(cases, one, measure), _values(cases, other, measure)
    scale = width or _widest(*values)
    differences, both = paired(*values, sessions, scale)
    found = summed(list(enumerate(differences)))
    mean, error = (None if value is None else round(value * scale, _DIGITS) for value in _mean_and_error(found))
    verdict, ends = None, None
    if width:
        claimed = judged(differences, both, margin=margin, level=level)
        verdict, (low, high) = claimed["verdict"], claimed["interval"]
        ends = round(low * width, _DIGITS), round(high * width, _DIGITS)
    return Difference(
        verdict=verdict,
        difference=mean,
        standard_error=error,
        interval=_normal(mean, error, level),
        always=ends,
        sessions=len(differences),
        cases=both,
    )


def pairs_of(
    cases: Sequence[CasePart],
    models: Sequence[str],
    measures: Sequence[str],
    ranges: Mapping[str, tuple[float, float]],
    *,
    margin: float,
    level: float,
) -> list[PairPart]:
    """Compare each model with each one that is named before it.

    Args:
        ranges: of the values of each measure that has a range.
    """
    found = []
    for other, one in combinations(models, 2):
        by_measure = {}
        for measure in measures:
            low, high = ranges.get(measure, (0.0, 0.0))
            by_measure[measure] = difference_of(
                cases, one, other, measure, width=high - low, margin=margin, level=level
            )
        found.append(PairPart(one=one, other=other, measures=by_measure))
    return found


def ranges_of(measures: Sequence[str], end_to_end: tuple[float, float]) -> dict[str, tuple[float, float]]:
    """Return the range of the values of each measure that has one."""
    return {name: end_to_end if name == "end_to_end" else (0.0, 1.0) for name in measures if MEASURES[name].bounded}


def _values(cases: Sequence[CasePart], model: str, measure: str) -> dict[str, float]:
    found = {case.key: case.values.get(model, {}).get(measure) for case in cases}
    return {key: value for key, value in found.items() if value is not None}


def _widest(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The greatest difference of a case, so that all are parts of it; 1 without any."""
    return max((abs(one[key] - other[key]) for key in one.keys() & other.keys()), default=0.0) or 1.0


def _mean_and_error(found: Mapping[str, float | None]) -> tuple[float | None, float | None]:
    return found["mean"], found["standard_error"]


def _normal(mean: float | None, error: float | None, level: float) -> tuple[float, float] | None:
    if mean is None or error is None:
        return None
    reach = NormalDist().inv_cdf(1 - level / 2) * error
    return round(mean - reach, _DIGITS), round(mean + reach, _DIGITS)
