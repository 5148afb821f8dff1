"""The cases and calculators of a suite, as an evaluation begins with them or goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slipstream.errors import SlipstreamError
from slipstream.evaluation.cases import AskedCase, CasesError, read_cases
from slipstream.evaluation.scoring import calculators_for, of_last_answers
from slipstream.rewards import RewardsSettings
from slipstream.settings.evaluation import Suite
from slipstream.store import heldout
from slipstream.store.database import Database
from slipstream.store.evaluations import Case

STORED = "stored answers"
"""The word for production where the answers that it gave to users are scored."""


class NothingToEvaluate(SlipstreamError):
    """The suite has no cases, or no calculator can judge answers to them; says which and why."""


async def cases_of(suite: Suite, database: Database, rewards: RewardsSettings, share: float = 0.0) -> list[AskedCase]:
    """The cases of a suite now.

    Args:
        rewards: by which they are to be scored: calculators that need the task's last answer have it asked for.
        share: `datasets.held_out`.

    Raises:
        CasesError: its file cannot be read.
        NothingToEvaluate: no session is held out.
    """
    if suite.cases is not None:
        return await asyncio.to_thread(read_cases, suite.cases)
    assert suite.heldout is not None, "a suite has cases or holds sessions out"
    async with database.read() as session:
        last = of_last_answers(rewards)
        calls = await heldout.newest(session, suite.name, suite.heldout.sessions, share, last_calls=last)
    if not calls:
        raise NothingToEvaluate(
            "heldout: no stored session was left out of training; datasets.held_out above 0 leaves some out "
            f"(suite {suite.name})"
        )
    return [_held_out(call.id, call.session, call.key) for call in calls]


def rewards_of(rewards: RewardsSettings, cases: Sequence[AskedCase]) -> RewardsSettings:
    """The calculators for these cases.

    Raises:
        NothingToEvaluate: there is none.
    """
    chosen = calculators_for(rewards, cases)
    if not chosen.calculators:
        names = ", ".join(spec.component for spec in rewards.calculators) or "an empty list"
        raise NothingToEvaluate(
            "rewards.calculators: expected one that judges each answer by itself, or by references that all cases "
            f"have; found {names}"
        )
    return chosen


def rows_of(cases: Sequence[AskedCase]) -> list[Case]:
    """The cases as they are stored, with numbers in the place of their sessions."""
    numbers: dict[str, int] = {}
    return [
        Case(position, case.name, case.key, numbers.setdefault(case.session, len(numbers)), case.call)
        for position, case in enumerate(cases)
    ]


async def again(suite: Suite, rows: Sequence[Case]) -> list[AskedCase]:
    """The cases of an evaluation that has begun, with what they ask.

    Raises:
        CasesError: its file cannot be read, or has other cases by now.
    """
    if suite.cases is None:
        return [_held_out(row.call_id or 0, str(row.session), row.key) for row in rows]
    there = {case.key: case for case in await asyncio.to_thread(read_cases, suite.cases)}
    if missing := [row.name for row in rows if row.key not in there]:
        raise CasesError(
            f"{suite.cases}: {len(missing)} cases changed since the evaluation began, {missing[0]!r} for one"
        )
    return [there[row.key] for row in rows]


def _held_out(call: int, session: str, key: str) -> AskedCase:
    return AskedCase(f"call-{call}", key, session, {}, call=call)
