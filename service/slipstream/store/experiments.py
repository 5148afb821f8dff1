"""Experiments and the decisions about them.

A decision is one transaction: it changes the experiment, is added to `experiment_decisions` with its evidence, noted in
the audit, and carried out on the `serving` row. One that was made on an older picture of the experiment is not carried
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import audit, events, ownership, rollouts, serving, versions
from slipstream.store.audit import Action, Author, Write
from slipstream.store.rollouts import DECIDER
from slipstream.store.states import OPEN_EXPERIMENTS, ExperimentState, VersionState, move
from slipstream.store.tables.experiments import ExperimentDecisionRow, ExperimentRow
from slipstream.store.tables.experiments import Winner as Winner

_RESTORED = "the store was restored from a backup, and what the lane serves is not known"
_KILLED = "the kill switch was turned: production answers all users"


class Verdict(StrEnum):
    """Kind of a decision."""

    START = "start"
    BEGIN = "begin"
    SETTLE = "settle"
    DECIDE = "decide"
    INCONCLUDE = "inconclude"
    STOP = "stop"
    FAIL = "fail"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as it is stored; times are Unix seconds.

    Attributes:
        version: of arm `b`; arm `a` is production.
        share: of arm `b` now.
        begun_at: when users were first assigned; None while it is pending.
        settling_at: from when no unit is assigned any more.
        ended_at: from when nothing is decided about it any more.
        rollout_id: by which the traffic went to arm `b`.
    """

    id: int
    name: str
    version: int
    state: ExperimentState
    plan: Mapping[str, Any]
    share: float
    lane_step: int | None
    owner: int | None
    revision: int
    started_by: str | None
    started_at: float
    begun_at: float | None
    settling_at: float | None
    ended_at: float | None
    winner: Winner | None
    rollout_id: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that is to be written down.

    Attributes:
        state, share: of the experiment from then on.
        reason: in words.
        evidence: JSON.
        winner: of one that ends it.
        lane_step, lane: of the beginning: the step that the lane has to show, and its base URL.
    """

    verdict: Verdict
    state: ExperimentState
    share: float
    reason: str
    evidence: Mapping[str, Any]
    winner: Winner | None = None
    lane_step: int | None = None
    lane: str | None = None


async def current(session: AsyncSession) -> Experiment | None:
    """Return the experiment that has not ended, if there is one."""
    row = await session.scalar(select(ExperimentRow).where(ExperimentRow.ended_at.is_(None)).limit(1))
    return None if row is None else _experiment(row)


async def get(session: AsyncSession, experiment_id: int) -> Experiment | None:
    """Return an experiment, or None if there is none of this number."""
    row = await session.get(ExperimentRow, experiment_id)
    return None if row is None else _experiment(row)


async def listed(session: AsyncSession, limit: int, before: int | None = None) -> Sequence[Experiment]:
    """The newest experiments, the newest first.

    Args:
        before: only those with a smaller number.
    """
    query = select(ExperimentRow).order_by(ExperimentRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(ExperimentRow.id < before)
    return [_experiment(row) for row in await session.scalars(query)]


async def decisions(session: AsyncSession, experiment_id: int) -> list[dict[str, Any]]:
    """The decisions about an experiment, in their order."""
    query = select(ExperimentDecisionRow).where(ExperimentDecisionRow.experiment_id == experiment_id)
    rows = await session.scalars(query.order_by(ExperimentDecisionRow.id))
    names = ("at", "action", "state", "share", "winner", "key", "reason", "evidence")
    return [{name: getattr(row, name) for name in names} for row in rows]


async def counts(session: AsyncSession) -> dict[ExperimentState, int]:
    """The number of experiments in each state."""
    found = dict.fromkeys(ExperimentState, 0)
    query = select(ExperimentRow.state, func.count()).group_by(ExperimentRow.state)
    return found | {state: int(count) for state, count in await session.execute(query)}


async def start(
    session: AsyncSession, name: str, version: int, plan: Mapping[str, Any], by: Author, now: float
) -> Experiment:
    """Start an experiment, in a transaction that is alone."""
    row = ExperimentRow(
        name=name,
        version=version,
        state=ExperimentState.PENDING,
        plan=dict(plan),
        share=0.0,
        revision=0,
        started_by=by.key,
        started_at=now,
    )
    session.add(row)
    await session.flush()
    await _write(session, row, Change(Verdict.START, row.state, 0.0, "the version is put into the lane", {}), by, now)
    await versions.set_state(session, version, VersionState.CANDIDATE, now)
    return _experiment(row)


async def claim(session: AsyncSession, experiment_id: int, sidecar: int) -> bool:
    """Have a sidecar decide about an experiment, if no other one that is alive does. Returns False if another does."""
    return await ownership.claim(session, ExperimentRow, experiment_id, sidecar, ExperimentRow.ended_at.is_(None))


async def carry_out(
    session: AsyncSession, seen: Experiment, change: Change, by: Author, now: float
) -> Experiment | None:
    """Carry out a decision: the experiment's state, its entry, the audit and what is served, in this transaction.

    Args:
        seen: the experiment as the decision was made on it.

    Returns:
        The experiment from then on; None if another decision came first, and this one is to be made anew.
    """
    row = await session.get(ExperimentRow, seen.id, populate_existing=True)
    if row is None or row.revision != seen.revision or row.ended_at is not None:
        return None
    await _carry_out(session, row, change, by, now)
    return _experiment(row)


async def switched(
    session: AsyncSession, seen: Experiment, rollout: int, reason: str, by: Author, now: float
) -> Experiment | None:
    """Note that the traffic went to arm `b` of an experiment that has ended, by a rollout in this transaction.

    Returns:
        The experiment from then on; None if another decision came first.
    """
    row = await session.get(ExperimentRow, seen.id, populate_existing=True)
    if row is None or row.revision != seen.revision or row.ended_at is None or row.rollout_id is not None:
        return None
    row.rollout_id = rollout
    await _write(session, row, Change(Verdict.SWITCH, row.state, 0.0, reason, {}, row.winner), by, now)
    return _experiment(row)


async def killed(session: AsyncSession, by: Author, now: float) -> Experiment | None:
    """Stop the experiment that assigns users, in the transaction of a kill: a revival does not bring it back.

    Returns:
        The experiment; None if there is none that assigns users or is about to.
    """
    row = await session.scalar(select(ExperimentRow).where(ExperimentRow.ended_at.is_(None)).limit(1))
    if row is None or row.state not in (ExperimentState.PENDING, ExperimentState.RUNNING):
        return None
    await _carry_out(session, row, Change(Verdict.STOP, ExperimentState.STOPPED, 0.0, _KILLED, {}), by, now)
    return _experiment(row)


async def end_all(session: AsyncSession, now: float) -> None:
    """End the experiments of a store that was restored: production answers all users."""
    for row in (await session.scalars(select(ExperimentRow).where(ExperimentRow.ended_at.is_(None)))).all():
        await _carry_out(session, row, Change(Verdict.STOP, ExperimentState.STOPPED, 0.0, _RESTORED, {}), DECIDER, now)


async def _carry_out(session: AsyncSession, row: ExperimentRow, change: Change, by: Author, now: float) -> None:
    row.state = move(row.state, change.state)
    share, row.share = row.share, change.share
    match change.verdict:
        case Verdict.BEGIN:
            row.begun_at, row.lane_step = now, change.lane_step
        case Verdict.SETTLE:
            row.settling_at = now
    await _write(session, row, change, by, now)
    if row.state not in OPEN_EXPERIMENTS:
        row.ended_at, row.winner = now, change.winner
        state = await rollouts.state_of_one_given_up(session, row.version)
        await versions.set_state(session, row.version, state, now)
    if change.share != share and change.share > 0:
        await serving.serve(session, row.version, change.share, row.lane_step, now, change.lane)
    elif change.share != share:
        await serving.serve(session, None, 0.0, None, now)
    await session.flush()


async def _write(session: AsyncSession, row: ExperimentRow, change: Change, by: Author, now: float) -> None:
    """Add an entry, and note it in the audit."""
    row.revision += 1
    row.reason = change.reason
    decision = ExperimentDecisionRow(
        experiment_id=row.id,
        revision=row.revision,
        at=now,
        action=change.verdict,
        state=change.state,
        share=change.share,
        winner=change.winner,
        key=by.key,
        reason=change.reason,
        evidence=dict(change.evidence),
    )
    session.add(decision)
    await events.of_experiment(session, row, decision)
    await audit.note(session, Write(Action(f"experiment_{change.verdict}"), str(row.id)), by, now)
    await session.flush()


def _experiment(row: ExperimentRow) -> Experiment:
    return Experiment(
        id=row.id,
        name=row.name,
        version=row.version,
        state=row.state,
        plan=row.plan,
        share=row.share,
        lane_step=row.lane_step,
        owner=row.owner,
        revision=row.revision,
        started_by=row.started_by,
        started_at=row.started_at,
        begun_at=row.begun_at,
        settling_at=row.settling_at,
        ended_at=row.ended_at,
        winner=row.winner,
        rollout_id=row.rollout_id,
        reason=row.reason,
    )
