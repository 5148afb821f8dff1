"""Results of the newest groups: how their runs ended, and whether their rewards differ."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.states import RunState
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.tenants import tenant_of

_NEWEST = 20
"""Groups that are looked at: enough to tell an accident from a rule, and few enough for each scrape."""

_ENDED = ("ready", "committing", "delivered", "rerun", "dropped")

_OF_OTHERS = "(it is told to keys of its tenant)"

SCORING = "scoring: "
"""Begins the reason of a run that was answered and got no reward."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The newest groups whose runs have all ended.

    Attributes:
        runs: of these groups.
        failed: runs without an answer; the Explorer refused them, or their attempts are used up.
        failure: why, for the newest of them.
        unscored: runs with an answer that got no reward.
        scoring_failure: why, for the newest of them.
        groups: with a reward.
        single: of those, groups with one reward.
        equal: of those, groups of several rewards that are all the same.
    """

    runs: int = 0
    failed: int = 0
    failure: str | None = None
    unscored: int = 0
    scoring_failure: str | None = None
    groups: int = 0
    single: int = 0
    equal: int = 0


async def outcomes(session: AsyncSession, since: float, tenant: str | None = None) -> Outcomes:
    """
    Args:
        since: Unix seconds; groups that ended before do not count.
        tenant: whose reasons are told, which may quote an answer; None tells all.
    """
    newest = select(GroupRow.id).where(GroupRow.updated_at > since, GroupRow.state.in_(_ENDED))
    newest = newest.order_by(GroupRow.updated_at.desc()).limit(_NEWEST)
    groups = (await session.scalars(newest)).all()
    query = select(RunRow.group_id, RunRow.state, RunRow.reward, RunRow.reason, GroupRow.task_id)
    query = query.join(GroupRow, GroupRow.id == RunRow.group_id).where(RunRow.group_id.in_(groups))
    rows = (await session.execute(query.order_by(RunRow.updated_at.desc()))).all()
    unscored: list[str] = []
    failed: list[str] = []
    for row in rows:
        if row.state == RunState.FAILED:
            reason = row.reason or "unknown"
            told = reason.removeprefix(SCORING) if tenant in (None, tenant_of(row.task_id)) else _OF_OTHERS
            (unscored if reason.startswith(SCORING) else failed).append(told)
    rewards: dict[str, list[float]] = {}
    for row in rows:
        if row.state == RunState.SCORED and row.reward is not None:
            rewards.setdefault(row.group_id, []).append(row.reward)
    return Outcomes(
        runs=len(rows),
        failed=len(failed),
        failure=failed[0] if failed else None,
        unscored=len(unscored),
        scoring_failure=unscored[0] if unscored else None,
        groups=len(rewards),
        single=sum(len(group) == 1 for group in rewards.values()),
        equal=sum(len(group) > 1 and len(set(group)) == 1 for group in rewards.values()),
    )
