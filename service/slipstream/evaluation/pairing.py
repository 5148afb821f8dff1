"""Two versions on the cases that both were asked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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


async def paired_cases(session: AsyncSession, one: Evaluation, other: Evaluation) -> list[Pair]:
    """The cases that both versions have a value of; none if other calculators scored them."""
    if one.settings["calculators"]["digest"] != other.settings["calculators"]["digest"]:
        return []
    cases = await evaluations.cases(session, one.id)
    values = values_of(cases, await evaluations.answers(session, one.id), Arm.VERSION)
    theirs = await evaluations.cases(session, other.id)
    others = values_of(theirs, await evaluations.answers(session, other.id), Arm.VERSION)
    both = {case.key: case for case in cases if case.key in values and case.key in others}
    return [Pair(case.name, case.session, values[key], others[key]) for key, case in both.items()]


def judged_pairs(one: Evaluation, pairs: Sequence[Pair]) -> dict[str, Any]:
    """The judgement about one version against the other."""
    of_one, of_other = ({place: pair[arm] for place, pair in _placed(pairs)} for arm in (2, 3))
    sessions: Mapping[str, Hashable] = {place: pair.session for place, pair in _placed(pairs)}
    differences, both = paired(of_one, of_other, sessions, width_of(one.settings))
    return judged(differences, both, margin=one.settings["margin"], level=one.settings["level"])


def _placed(pairs: Sequence[Pair]) -> list[tuple[str, Pair]]:
    return [(str(place), pair) for place, pair in enumerate(pairs)]
