"""Rollouts and the decisions about them.

A decision is one transaction: it changes the rollout, is added to `rollout_decisions` with its evidence, noted in the
audit, written to the outbox of webhooks, and carried out on the `serving` row. One that was made on an older picture of
the rollout is not carried out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import audit, evaluations, events, ownership, serving, versions
from slipstream.store.audit import Action, Author, Write
from slipstream.store.states import OPEN_ROLLOUTS, RolloutState, VersionState, move
from slipstream.store.tables.rollouts import RolloutDecisionRow, RolloutRow
from slipstream.store.tables.versions import VersionRow

DECIDER = Author("(decider)", None)
"""Author of what the sidecar decides itself: a name that no key can have."""

_RESTORED = "the store was restored from a backup, and what the lane serves is not known"


class Verdict(StrEnum):
    """Kind of a decision."""

    OPEN = "open"
    BEGIN = "begin"
    ADVANCE = "advance"
    HOLD = "hold"
    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ROLL_BACK = "roll_back"
    ABORT = "abort"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Asked:
    """A decision by hand that waits for the approval of a second person.

    Attributes:
        action: `advance` or `promote`.
        by: the name of the key that asked for it.
        at: Unix seconds.
        force: promote the version whatever its verdict is.
    """

    action: str
    by: str
    at: float
    force: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout as it is stored; times are Unix seconds.

    Attributes:
        position, promotions, level: of its test in the stream of versions; `level` was computed from the other two.
        begun_at: when users were first assigned; None while it is pending.
        ended_at: from when nothing is decided about it any more.
        asked: a decision that waits for a second person.
    """

    id: int
    version: int
    state: RolloutState
    plan: Mapping[str, Any]
    position: int
    promotions: int
    level: float
    step: int
    share: float
    lane_step: int | None
    owner: int | None
    revision: int
    opened_by: str | None
    opened_at: float
    begun_at: float | None
    step_at: float | None
    promoted_at: float | None
    proven: bool
    ended_at: float | None
    reason: str | None
    asked: Asked | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that is to be written down.

    Attributes:
        state, step, share: of the rollout from then on.
        reason: in words.
        evidence: JSON.
        proven: of a promotion: the test had proven the version better.
        lane_step, lane: of the beginning: the step that the lane has to show, and its base URL.
    """

    verdict: Verdict
    state: RolloutState
    step: int
    share: float
    reason: str
    evidence: Mapping[str, Any]
    proven: bool = False
    lane_step: int | None = None
    lane: str | None = None


async def stream(session: AsyncSession) -> tuple[int, int]:
    """Return how many versions were tested so far, and how many of them the test has promoted."""
    promoted = func.count().filter(RolloutRow.proven.is_(True))
    tested, promotions = (await session.execute(select(func.count(), promoted).select_from(RolloutRow))).one()
    return int(tested), int(promotions)


async def known_version(session: AsyncSession, version: int) -> bool:
    """Return whether there is a version of this number."""
    return await session.get(VersionRow, version) is not None


async def current(session: AsyncSession) -> Rollout | None:
    """Return the rollout that something is still decided about: one that is open, or the live one."""
    query = select(RolloutRow).where(RolloutRow.ended_at.is_(None)).order_by(RolloutRow.id.desc()).limit(1)
    row = await session.scalar(query)
    return None if row is None else _rollout(row)


async def get(session: AsyncSession, rollout_id: int) -> Rollout | None:
    """Return a rollout, or None if there is none of this number."""
    row = await session.get(RolloutRow, rollout_id)
    return None if row is None else _rollout(row)


async def listed(session: AsyncSession, limit: int, before: int | None = None) -> Sequence[Rollout]:
    """The newest rollouts, the newest first.

    Args:
        before: only those with a smaller number.
    """
    query = select(RolloutRow).order_by(RolloutRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(RolloutRow.id < before)
    return [_rollout(row) for row in await session.scalars(query)]


async def newest_of(session: AsyncSession, version_numbers: Sequence[int]) -> dict[int, Rollout]:
    """The newest rollout of each of these versions that had users assigned, and was opened after its checkpoint was
    made: before that the number was another training's."""
    newest = select(func.max(RolloutRow.id)).join(VersionRow, VersionRow.version == RolloutRow.version)
    newest = newest.where(
        RolloutRow.version.in_(version_numbers),
        RolloutRow.begun_at.is_not(None),
        RolloutRow.opened_at >= func.coalesce(VersionRow.made_at, 0.0),
    )
    rows = await session.scalars(select(RolloutRow).where(RolloutRow.id.in_(newest.group_by(RolloutRow.version))))
    return {row.version: _rollout(row) for row in rows}


async def last_evidence(session: AsyncSession, rollout_id: int) -> Mapping[str, Any]:
    """The rollout's evidence beside the last decision about it that has any; empty if none has."""
    query = select(RolloutDecisionRow.evidence).where(RolloutDecisionRow.rollout_id == rollout_id)
    for found in await session.scalars(query.order_by(RolloutDecisionRow.id.desc())):
        if events.is_of_rollout(found):
            return dict(found)
    return {}


async def decisions(session: AsyncSession, rollout_id: int) -> list[dict[str, Any]]:
    """The decisions about a rollout, in their order."""
    query = select(RolloutDecisionRow).where(RolloutDecisionRow.rollout_id == rollout_id)
    rows = await session.scalars(query.order_by(RolloutDecisionRow.id))
    return [
        {
            "at": row.at,
            "action": row.action,
            "state": row.state,
            "step": row.step,
            "share": row.share,
            "key": row.key,
            "reason": row.reason,
            "evidence": row.evidence,
        }
        for row in rows
    ]


async def counts(session: AsyncSession) -> dict[RolloutState, int]:
    """The number of rollouts in each state."""
    found = dict.fromkeys(RolloutState, 0)
    query = select(RolloutRow.state, func.count()).group_by(RolloutRow.state)
    return found | {state: int(count) for state, count in await session.execute(query)}


async def open_(
    session: AsyncSession, version: int, plan: Mapping[str, Any], level: float, by: Author, now: float
) -> Rollout:
    """Open a rollout, in a transaction that is alone.

    Args:
        level: at which better has to be proven.
    """
    position, promotions = await stream(session)
    row = RolloutRow(
        version=version,
        state=RolloutState.PENDING,
        plan=dict(plan),
        position=position + 1,
        promotions=promotions,
        level=level,
        step=0,
        share=0.0,
        revision=0,
        opened_by=by.key,
        opened_at=now,
        proven=False,
    )
    session.add(row)
    await session.flush()
    opened = Change(Verdict.OPEN, row.state, 0, 0.0, "the version is put into the lane", {})
    await _write(session, row, opened, by, now)
    return _rollout(row)


async def claim(session: AsyncSession, rollout_id: int, sidecar: int) -> bool:
    """Have a sidecar decide about a rollout, if no other one that is alive does. Returns False if another does."""
    return await ownership.claim(session, RolloutRow, rollout_id, sidecar, RolloutRow.ended_at.is_(None))


async def carry_out(session: AsyncSession, seen: Rollout, change: Change, by: Author, now: float) -> Rollout | None:
    """Carry out a decision: the rollout's state, its entry, the audit and what is served, in this transaction.

    Args:
        seen: the rollout as the decision was made on it.

    Returns:
        The rollout from then on; None if another decision came first, and this one is to be made anew.
    """
    row = await session.get(RolloutRow, seen.id, populate_existing=True)
    if row is None or row.revision != seen.revision or row.ended_at is not None:
        return None
    row.state = move(row.state, change.state)
    await _write(session, row, change, by, now)
    return _rollout(row)


async def ask(session: AsyncSession, seen: Rollout, asked: Asked, by: Author) -> Rollout | None:
    """Note a decision that waits for a second person, in the place of one that was asked for before.

    Returns:
        The rollout from then on; None if another decision came first.
    """
    row = await session.get(RolloutRow, seen.id, populate_existing=True)
    if row is None or row.revision != seen.revision or row.ended_at is not None:
        return None
    row.revision += 1  # so that nobody approves another decision than the one that he has seen
    row.asked = asdict(asked)
    await audit.note(session, Write(Action.ROLLOUT_ASK, str(row.id)), by, asked.at)
    await session.flush()
    return _rollout(row)


async def end_all(session: AsyncSession, now: float) -> None:
    """End the rollouts of a store that was restored: production answers all users."""
    for row in (await session.scalars(select(RolloutRow).where(RolloutRow.ended_at.is_(None)))).all():
        row.state = move(row.state, RolloutState.ABORTED)
        await _write(session, row, Change(Verdict.ABORT, row.state, row.step, 0.0, _RESTORED, {}), DECIDER, now)


async def _write(session: AsyncSession, row: RolloutRow, change: Change, by: Author, now: float) -> None:
    row.revision += 1
    row.reason = change.reason
    if change.verdict is not Verdict.HOLD:
        row.asked = None  # it was asked for in another situation
    if change.verdict is Verdict.BEGIN:
        row.begun_at, row.lane_step = now, change.lane_step
    if change.verdict is Verdict.PROMOTE:
        row.promoted_at, row.proven = now, change.proven
    if change.verdict in (Verdict.BEGIN, Verdict.ADVANCE):
        row.step_at = now
    over = change.verdict is Verdict.REPLACE or change.state in (RolloutState.ROLLED_BACK, RolloutState.ABORTED)
    if over:
        row.ended_at = now
    shared, row.step, row.share = row.share, change.step, change.share
    decision = RolloutDecisionRow(
        rollout_id=row.id,
        revision=row.revision,
        at=now,
        action=change.verdict,
        state=change.state,
        step=change.step,
        share=change.share,
        key=by.key,
        reason=change.reason,
        evidence=dict(change.evidence),
    )
    session.add(decision)
    await events.of_decision(session, row, decision)
    await audit.note(session, Write(Action(f"rollout_{change.verdict}"), str(row.id)), by, now)
    if (state := await _state_of_version(session, row.version, change.verdict)) is not None:
        await versions.set_state(session, row.version, state, now)
    if over:
        await serving.serve(session, None, 0.0, None, now)
    elif change.share != shared:
        lane = change.lane if change.verdict is Verdict.BEGIN else (await serving.current(session)).lane
        await serving.serve(session, row.version, change.share, row.lane_step, now, lane)
    await session.flush()


async def _state_of_version(session: AsyncSession, version: int, verdict: Verdict) -> VersionState | None:
    """The state into which a decision brings the version; None if it changes nothing."""
    match verdict:
        case Verdict.OPEN:
            return VersionState.CANDIDATE
        case Verdict.PROMOTE:
            return VersionState.LIVE
        case Verdict.ROLL_BACK:
            return VersionState.REJECTED
        case Verdict.REPLACE:
            return VersionState.RETIRED
        case Verdict.ABORT:
            return await state_of_one_given_up(session, version)
    return None


async def state_of_one_given_up(session: AsyncSession, version: int) -> VersionState:
    """The state of a version after a comparison that ended without saying anything about it."""
    row = await session.get(VersionRow, version)
    if row is not None and row.state is VersionState.LIVE:
        return VersionState.RETIRED
    if await evaluations.compared(session, version):
        return VersionState.TESTED
    return VersionState.SEEN if row is None or row.kept_path is None else VersionState.KEPT


def is_open(rollout: Rollout) -> bool:
    """Return whether the rollout is on its way."""
    return rollout.state in OPEN_ROLLOUTS


def _rollout(row: RolloutRow) -> Rollout:
    return Rollout(
        id=row.id,
        version=row.version,
        state=row.state,
        plan=row.plan,
        position=row.position,
        promotions=row.promotions,
        level=row.level,
        step=row.step,
        share=row.share,
        lane_step=row.lane_step,
        owner=row.owner,
        revision=row.revision,
        opened_by=row.opened_by,
        opened_at=row.opened_at,
        begun_at=row.begun_at,
        step_at=row.step_at,
        promoted_at=row.promoted_at,
        proven=row.proven,
        ended_at=row.ended_at,
        reason=row.reason,
        asked=None if row.asked is None else Asked(**row.asked),
    )
