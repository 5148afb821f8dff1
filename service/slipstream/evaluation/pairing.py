"""Two versions on the cases that both were asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.evaluation.results import values_of, width_of
from slipstream.evaluation.statistics import judged, paired
from slipstream.store import evaluations
from slipstream.store.evaluations import Arm, Evaluation


class Pair(NamedTuple):
    """A case with its value for each of the two versions.

    Attributes:
        name: the case's id.
        session: whose cases are alike.
    """

    name: str
    session: Hashable
    one: float
    other: float


@dataclass(frozen=True, slots=True)
class Paired:
    """The result of a comparison of one version with the other, case by case.

    Attributes:
        judgement: as `statistics.judged` makes it.
        one, other: the mean values over the cases; None without any.
        gained, lost: the cases that are most in favour of the one, and of the other.
        reason: why no case is compared whatever its answers were, in words; None if cases are.
    """

    judgement: Mapping[str, Any]
    one: float | None
    other: float | None
    gained: Sequence[Pair]
    lost: Sequence[Pair]
    reason: str | None


async def pair(session: AsyncSession, one: Evaluation, other: Evaluation, named: int) -> Paired:
    """Compare two versions on the cases that both have a value of; on none if they were asked with other parameters, or
    other calculators scored them.

    Args:
        named: cases that are named on each side, at most.
    """
    reason = _incomparable(one, other)
    pairs = [] if reason else await _pairs(session, one, other)
    return await asyncio.to_thread(_judged, one, pairs, named, reason)  # ten thousand cases take a while


def _incomparable(one: Evaluation, other: Evaluation) -> str | None:
    if one.settings["calculators"]["digest"] != other.settings["calculators"]["digest"]:
        return f"evaluation {other.id} was scored by other calculators"
    mine, theirs = one.settings["parameters"], other.settings["parameters"]
    if mine != theirs:
        told = f"evaluation {other.id} has the parameters {json.dumps(theirs)}"
        return f"{told}, and evaluation {one.id} {json.dumps(mine)}"
    return None


async def _pairs(session: AsyncSession, one: Evaluation, other: Evaluation) -> list[Pair]:
    cases = await evaluations.cases(session, one.id)
    values = values_of(cases, await evaluations.answers(session, one.id), Arm.VERSION)
    theirs = await evaluations.cases(session, other.id)
    others = values_of(theirs, await evaluations.answers(session, other.id), Arm.VERSION)
    both = {case.key: case for case in cases if case.key in values and case.key in others}
    return [Pair(case.name, case.session, values[key], others[key]) for key, case in both.items()]


def _judged(one: Evaluation, pairs: Sequence[Pair], named: int, reason: str | None) -> Paired:
    keys = [str(place) for place in range(len(pairs))]
    of_one = {key: each.one for key, each in zip(keys, pairs, strict=True)}
    of_other = {key: each.other for key, each in zip(keys, pairs, strict=True)}
    sessions: dict[str, Hashable] = {key: each.session for key, each in zip(keys, pairs, strict=True)}
    differences, both = paired(of_one, of_other, sessions, width_of(one.settings))
    ordered = sorted(pairs, key=lambda each: each.one - each.other)
    return Paired(
        judged(differences, both, margin=one.settings["margin"], level=one.settings["level"]),
        fmean(of_one.values()) if pairs else None,
        fmean(of_other.values()) if pairs else None,
        [each for each in reversed(ordered[-named:]) if each.one > each.other],
        [each for each in ordered[:named] if each.one < each.other],
        reason,
    )
