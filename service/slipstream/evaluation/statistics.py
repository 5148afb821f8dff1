"""Sums over the cases of an evaluation, and versions compared case by case.

Values of one session resemble each other, so that a standard error counts sessions: it is that of clusters (K.-Y. Liang
and S. Zeger, "Longitudinal data analysis using generalized linear models", Biometrika 73 (1986), for a mean). Evidence
takes one difference for each session too, and is that of `slipstream.evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from slipstream.evidence import Claim, Evidence, differences_missing, interval

_DIGITS = 6


class Judgement(StrEnum):
    """Result of a comparison of a version with another, or with production."""

    BETTER = "better"
    """It is proven that its mean is greater."""
    EQUAL = "equal"
    """It is proven that the means differ by less than the margin."""
    WORSE = "worse"
    """It is proven that its mean is smaller."""
    NOT_ENOUGH_DATA = "not_enough_data"


def summed(values: Sequence[tuple[Hashable, float]]) -> dict[str, Any]:
    """Mean, standard deviation and the mean's standard error of values, one for each case.

    Args:
        values: each with its session.

    Returns:
        `standard_error` is null with fewer than two sessions, `std` with fewer than two cases.
    """
    count = len(values)
    if not count:
        return {"mean": None, "std": None, "standard_error": None, "count": 0, "sessions": 0}
    mean = math.fsum(value for _, value in values) / count
    of_sessions: dict[Hashable, float] = {}
    for session, value in values:
        of_sessions[session] = of_sessions.get(session, 0.0) + value - mean
    sessions = len(of_sessions)
    squares = math.fsum((value - mean) ** 2 for _, value in values)
    between = math.fsum(total**2 for total in of_sessions.values())
    error = math.sqrt(sessions / (sessions - 1) * between) / count if sessions > 1 else None
    return {
        "mean": _rounded(mean),
        "std": _rounded(math.sqrt(squares / (count - 1))) if count > 1 else None,
        "standard_error": _rounded(error),
        "count": count,
        "sessions": sessions,
    }


def paired(
    treated: Mapping[str, float], control: Mapping[str, float], sessions: Mapping[str, Hashable], width: float
) -> tuple[list[float], int]:
    """Differences of treatment less control, one for each session, in the order of `sessions`.

    Args:
        treated, control: the value of each case, by its key.
        sessions: of each case, in the cases' order.
        width: of the range of values.

    Returns:
        Numbers in [-1, 1], in parts of the range, and the number of cases that both have.
    """
    found: dict[Hashable, list[float]] = {}
    for key, session in sessions.items():
        if key in treated and key in control:
            difference = (treated[key] - control[key]) / width
            found.setdefault(session, []).append(min(1.0, max(-1.0, difference)))
    return [math.fsum(some) / len(some) for some in found.values()], sum(map(len, found.values()))


def judged(differences: Sequence[float], cases: int, *, margin: float, level: float) -> dict[str, Any]:
    """The judgement about differences, one for each session, in any order: that of a file says nothing.

    Args:
        cases: that they were made of.
        margin, level: each claim is tested at the whole level; `better` and `worse` by more than 0.

    Returns:
        The judgement, and if it is that there is not enough data, the sessions and cases that are missing: an estimate,
        null if no number is foreseen.
    """
    claims = {
        Judgement.BETTER: Evidence(Claim.BETTER, once=True),
        Judgement.EQUAL: Evidence(Claim.EQUAL, margin, once=True),
        Judgement.WORSE: Evidence(Claim.WORSE, once=True),
    }
    for difference in differences:
        for claim in claims.values():
            claim.add(difference)
    proven = next((name for name, claim in claims.items() if claim.proven(level)), Judgement.NOT_ENOUGH_DATA)
    low, high = interval(differences, level)
    count = len(differences)
    mean = math.fsum(differences) / count if count else None
    error = None
    if mean is not None and count > 1:
        error = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (count - 1) / count)
    return {
        "verdict": proven,
        "difference": _rounded(mean),
        "standard_error": _rounded(error),
        "interval": [_rounded(low), _rounded(high)],
        "sessions": count,
        "cases": cases,
        "missing": _missing(claims.values(), count, cases, level) if proven is Judgement.NOT_ENOUGH_DATA else None,
    }


def _missing(claims: Any, count: int, cases: int, level: float) -> dict[str, int | None]:
    foreseen = [missing for claim in claims if (missing := differences_missing(claim, level)) is not None]
    sessions = min(foreseen, default=None)
    if sessions is None:
        return {"sessions": None, "cases": None}
    return {"sessions": sessions, "cases": math.ceil(sessions * cases / count)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
