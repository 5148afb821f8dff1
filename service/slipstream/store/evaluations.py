"""Evaluations in the store: opened, claimed by one sidecar, begun with fixed cases, filled answer by answer, and ended.

Each answer is stored when it is scored, so that whoever goes on after a crash asks for the missing ones alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import events, ownership
from slipstream.store.states import OPEN_EVALUATIONS, EvaluationState, move
from slipstream.store.tables.evaluations import EvaluationAnswerRow, EvaluationCaseRow, EvaluationRow
from slipstream.store.tables.versions import VersionRow


class Arm(StrEnum):
    """Author of an answer."""

    VERSION = "version"
    PRODUCTION = "production"


class Outcome(StrEnum):
    """Kind of an answer, by which it has its value."""

    SCORED = "scored"
    FAILED = "failed"
    """The version refused, or broke its answer off: it has the lowest value."""
    UNSCORED = "unscored"
    """A calculator failed on the answer: it has the lowest value."""
    NO_BASIS = "no_basis"
    """The case gives the calculators nothing to compare with: it has no value."""
    AWAY = "away"
    """Production did not answer: there is no value."""
    GONE = "gone"
    """The held-out call was deleted, or other things are known of its right answer by now: there is no value."""


class Key(NamedTuple):
    """Place of an answer within its evaluation."""

    position: int
    arm: Arm
    repeat: int


class Answer(NamedTuple):
    """The value of an answer."""

    outcome: Outcome
    value: float | None
    breakdown: Mapping[str, Any]
    latency: float | None


class Case(NamedTuple):
    """A case of an evaluation, without what it asks; see the columns of `EvaluationCaseRow`."""

    position: int
    name: str
    key: str
    session: int
    call_id: int | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation as it is stored; see the columns of `EvaluationRow`."""

    id: int
    version: int
    suite: str
    state: EvaluationState
    reason: str | None
    trigger: str
    asked_by: str | None
    server: str | None
    opened_at: float
    begun_at: float | None
    ended_at: float | None
    settings: Mapping[str, Any]
    result: Mapping[str, Any] | None
    superseded: bool


async def open_(
    session: AsyncSession, version: int, suite: str, trigger: str, key: str | None, now: float
) -> Evaluation:
    """Open an evaluation."""
    row = EvaluationRow(version=version, suite=suite, trigger=trigger, asked_by=key, opened_at=now, settings={})
    row.superseded = False
    session.add(row)
    await session.flush()
    return _evaluation(row)


async def evaluated(session: AsyncSession, version: int, suite: str) -> bool:
    """Return whether a version has an evaluation on this suite that is done, or on its way."""
    useful = EvaluationRow.state.in_((*OPEN_EVALUATIONS, EvaluationState.DONE))
    query = select(EvaluationRow.id).where(EvaluationRow.version == version, EvaluationRow.suite == suite, useful)
    return await session.scalar(query.where(EvaluationRow.superseded.is_(False)).limit(1)) is not None


async def versions_since(session: AsyncSession, suite: str) -> int | None:
    """The number of versions that the Explorer served for the first time since this suite was last begun; None if it
    never was."""
    last = await session.scalar(select(func.max(EvaluationRow.opened_at)).where(EvaluationRow.suite == suite))
    if last is None:
        return None
    return await session.scalar(select(func.count()).select_from(VersionRow).where(VersionRow.seen_at > last)) or 0


async def claim(session: AsyncSession, sidecar: int) -> Evaluation | None:
    """The oldest open evaluation, if no other sidecar that is alive carries it out; it is this one's from now on."""
    oldest = select(EvaluationRow).where(EvaluationRow.state.in_(OPEN_EVALUATIONS)).order_by(EvaluationRow.id).limit(1)
    row = await session.scalar(oldest)
    if row is None:
        return None
    return _evaluation(row) if await ownership.claim(session, EvaluationRow, row.id, sidecar) else None


async def open_now(session: AsyncSession) -> bool:
    """Return whether an evaluation is open."""
    return bool(await session.scalar(select(exists().where(EvaluationRow.state.in_(OPEN_EVALUATIONS)))))


async def open_since(session: AsyncSession) -> float | None:
    """Since when the evaluation that has waited or run for longest is open, in Unix seconds; None without any."""
    query = select(func.min(EvaluationRow.opened_at)).where(EvaluationRow.state.in_(OPEN_EVALUATIONS))
    return await session.scalar(query)


async def begin(
    session: AsyncSession, evaluation: int, cases: Sequence[Case], settings: Mapping[str, Any], server: str, now: float
) -> Evaluation:
    """Fix the cases of an evaluation, and how it is carried out."""
    row = await session.get_one(EvaluationRow, evaluation)
    row.state = move(row.state, EvaluationState.RUNNING)
    row.begun_at, row.settings, row.server = now, dict(settings), server
    session.add_all(EvaluationCaseRow(evaluation_id=evaluation, **case._asdict()) for case in cases)
    await session.flush()
    return _evaluation(row)


async def cases(session: AsyncSession, evaluation: int) -> list[Case]:
    """The cases of an evaluation, in their order."""
    query = select(EvaluationCaseRow).where(EvaluationCaseRow.evaluation_id == evaluation)
    rows = await session.scalars(query.order_by(EvaluationCaseRow.position))
    return [Case(row.position, row.name, row.key, row.session, row.call_id) for row in rows]


async def answers(session: AsyncSession, evaluation: int) -> dict[Key, Answer]:
    """The answers that are stored so far."""
    query = select(EvaluationAnswerRow).where(EvaluationAnswerRow.evaluation_id == evaluation)
    rows = await session.scalars(query.order_by(EvaluationAnswerRow.position, EvaluationAnswerRow.repeat))
    return {
        Key(row.position, Arm(row.arm), row.repeat): Answer(Outcome(row.outcome), row.value, row.breakdown, row.latency)
        for row in rows
    }


async def save(session: AsyncSession, evaluation: int, found: Mapping[Key, Answer]) -> None:
    """Store answers."""
    for key, answer in found.items():
        place = evaluation, key.position, key.arm.value, key.repeat
        if await session.get(EvaluationAnswerRow, place) is None:
            session.add(
                EvaluationAnswerRow(
                    evaluation_id=evaluation,
                    position=key.position,
                    arm=key.arm.value,
                    repeat=key.repeat,
                    outcome=answer.outcome.value,
                    value=answer.value,
                    breakdown=dict(answer.breakdown),
                    latency=answer.latency,
                )
            )


async def end(
    session: AsyncSession,
    evaluation: int,
    state: EvaluationState,
    now: float,
    *,
    reason: str | None = None,
    result: Mapping[str, Any] | None = None,
) -> Evaluation:
    """End an evaluation.

    Args:
        reason: why it failed or is not used.
        result: sums over its answers.
    """
    row = await session.get_one(EvaluationRow, evaluation)
    row.state = move(row.state, state)
    row.ended_at, row.reason, row.owner = now, reason, None
    row.result = None if result is None else dict(result)
    await events.of_evaluation(session, row, now)
    return _evaluation(row)


async def compared(session: AsyncSession, version: int) -> bool:
    """Return whether a version was compared with production in an evaluation that is done."""
    found = (await newest_done(session, [version])).get(version, {})
    return any((one.result or {}).get("against_production") for one in found.values())


async def supersede(session: AsyncSession, version: int) -> None:
    """Note that the number of a version is another training's: its evaluations tell nothing about the new one."""
    old = update(EvaluationRow).where(EvaluationRow.version == version).values(superseded=True)
    await session.execute(old.execution_options(synchronize_session=False))


async def get(session: AsyncSession, evaluation: int) -> Evaluation | None:
    """Return an evaluation, or None if there is none of this number."""
    row = await session.get(EvaluationRow, evaluation)
    return None if row is None else _evaluation(row)


async def listed(
    session: AsyncSession,
    limit: int,
    *,
    before: int | None = None,
    version: int | None = None,
    suite: str | None = None,
) -> list[Evaluation]:
    """The newest evaluations, the newest first.

    Args:
        before: only those with a smaller number.
    """
    query = select(EvaluationRow).order_by(EvaluationRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(EvaluationRow.id < before)
    if version is not None:
        query = query.where(EvaluationRow.version == version)
    if suite is not None:
        query = query.where(EvaluationRow.suite == suite)
    return [_evaluation(row) for row in await session.scalars(query)]


async def newest_done(session: AsyncSession, versions: Collection[int]) -> dict[int, dict[str, Evaluation]]:
    """The newest evaluation of each version on each suite that is done and tells of the version's present weights."""
    if not versions:
        return {}
    newest = select(func.max(EvaluationRow.id)).where(
        EvaluationRow.version.in_(versions),
        EvaluationRow.state == EvaluationState.DONE,
        EvaluationRow.superseded.is_(False),
    )
    newest = newest.group_by(EvaluationRow.version, EvaluationRow.suite)
    found: dict[int, dict[str, Evaluation]] = {}
    for row in await session.scalars(select(EvaluationRow).where(EvaluationRow.id.in_(newest))):
        found.setdefault(row.version, {})[row.suite] = _evaluation(row)
    return found


def _evaluation(row: EvaluationRow) -> Evaluation:
    return Evaluation(
        id=row.id,
        version=row.version,
        suite=row.suite,
        state=row.state or EvaluationState.PENDING,
        reason=row.reason,
        trigger=row.trigger,
        asked_by=row.asked_by,
        server=row.server,
        opened_at=row.opened_at,
        begun_at=row.begun_at,
        ended_at=row.ended_at,
        settings=row.settings,
        result=row.result,
        superseded=row.superseded,
    )
