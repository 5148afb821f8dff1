"""Counts of the store's content for people: all work under way, and the newest of what has ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import facade, ready_groups, replays
from slipstream.store.counts import by_state, newest
from slipstream.store.states import (
    GROUPS_UNDER_WAY,
    RUNS_UNDER_WAY,
    UNFINISHED_COMMITS,
    FeedbackState,
    RunState,
)
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.commits import CommitRow
from slipstream.store.tables.feedback import FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.tenants import name_of, tenant_of

_LOOKED_AT = 100
"""Number of newest failures that are searched for those of one tenant."""


async def overview(session: AsyncSession, tenant: str | None = None) -> dict[str, Any]:
    """Counts of everything by state, and the last of what failed and what was delivered.

    Args:
        tenant: whose failures are named; None for those of all. Counts are of all.
    """
    last = await session.scalar(select(CommitRow).order_by(CommitRow.id.desc()).limit(1))
    return {
        "tasks": await by_state(session, TaskRow.state, TaskRow.updated_at, TaskRow.decided.is_(False)),
        "selection": await decisions(session),
        "groups": await by_state(
            session,
            GroupRow.state,
            GroupRow.updated_at,
            GroupRow.state.in_(GROUPS_UNDER_WAY),
        ),
        "runs": await by_state(session, RunRow.state, RunRow.id, RunRow.state.in_(RUNS_UNDER_WAY)),
        "failed_runs": await _newest_failures(session, tenant),
        "rewards": await _rewards(session),
        "feedback": await by_state(
            session, FeedbackTargetRow.state, FeedbackTargetRow.id, FeedbackTargetRow.state == FeedbackState.WAITING
        ),
        "commits": await by_state(session, CommitRow.state, CommitRow.id, CommitRow.state.in_(UNFINISHED_COMMITS)),
        "last_commit": None
        if last is None
        else {
            "id": last.id,
            "state": last.state,
            "trigger": last.trigger,
            "groups": last.groups,
            "experiences": last.experiences,
            "reason": last.reason,
            "started_at": last.started_at,
            "ended_at": last.ended_at,
        },
        "facade": await facade.overview(session, tenant),
        "experiences_ready": await ready_groups.ready_experiences(session),
    }


async def decisions(session: AsyncSession) -> dict[str, dict[str, int]]:
    """The newest tasks, `selected` and `not_selected`, by the reason of that."""
    reason = func.coalesce(TaskRow.reason, "undecided").label("reason")
    recent = newest(TaskRow.updated_at, TaskRow.selected.label("selected"), reason).subquery()
    query = select(recent.c.selected, recent.c.reason, func.count()).group_by(recent.c.selected, recent.c.reason)
    found: dict[str, dict[str, int]] = {"selected": {}, "not_selected": {}}
    for selected, why, count in await session.execute(query):
        found["selected" if selected else "not_selected"][why] = count
    return found


async def replay_overview(session: AsyncSession, task_id: str) -> dict[str, Any] | None:
    """The newest group of a task with its runs, for its client; None where there is none."""
    mine = select(GroupRow.id, GroupRow.state).where(GroupRow.task_id == task_id, GroupRow.kind == replays.KIND)
    newest = mine.join(RunRow, RunRow.group_id == GroupRow.id).order_by(RunRow.run_id.desc()).limit(1)
    group = (await session.execute(newest)).one_or_none()
    if group is None:
        return None
    query = select(RunRow).where(RunRow.group_id == group.id).order_by(RunRow.run_id)
    rows = (await session.scalars(query)).all()
    calls = await replays.msg_ids(session, [row.id for row in rows])
    return {
        "task_id": name_of(task_id),
        "group_id": group.id,
        "state": group.state,
        "runs": [
            {
                "run_id": row.run_id,
                "state": row.state,
                "msg_ids": calls.get(row.id, []),
                "reward": row.reward,
                "breakdown": row.breakdown,
                "error": row.reason,
                "side_effects": (row.ending or {}).get("side_effects", []),
                "policy_version": row.policy_version,
            }
            for row in rows
        ],
    }


async def _newest_failures(session: AsyncSession, tenant: str | None) -> list[dict[str, Any]]:
    query = select(RunRow.group_id, RunRow.run_id, RunRow.reason, GroupRow.task_id)
    query = query.join(GroupRow, GroupRow.id == RunRow.group_id).where(RunRow.state == RunState.FAILED)
    rows = await session.execute(query.order_by(RunRow.due_at.desc()).limit(5 if tenant is None else _LOOKED_AT))
    failed = [row for row in rows if tenant in (None, tenant_of(row.task_id))]
    return [{"group_id": row.group_id, "run_id": row.run_id, "reason": row.reason} for row in failed[:5]]


async def _rewards(session: AsyncSession) -> list[dict[str, Any]]:
    """Rewards of the newest runs by policy version, the newest version first."""
    recent = newest(RunRow.id, RunRow.policy_version.label("version"), RunRow.reward.label("reward")).subquery()
    reward = recent.c.reward
    query = select(
        recent.c.version, func.count(reward).label("runs"), func.avg(reward).label("mean"),
        func.min(reward).label("min"), func.max(reward).label("max"),
    )  # fmt: skip
    query = query.where(reward.is_not(None)).group_by(recent.c.version)
    found = [dict(row._mapping) for row in await session.execute(query)]
    return sorted(found, key=lambda row: -1 if row["version"] is None else row["version"], reverse=True)
