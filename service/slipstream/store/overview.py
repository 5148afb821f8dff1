"""What the store holds, counted for people."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import commits, facade
from slipstream.store.tables import CallRow, CommitRow, FeedbackTargetRow, GroupRow, RunRow, TaskRow, VersionRow


async def overview(session: AsyncSession, served: int | None) -> dict[str, Any]:
    """Counts of everything by state, the served policy version, and what was delivered since it appeared."""
    reason = func.coalesce(TaskRow.reason, "undecided")
    decisions = select(TaskRow.selected, reason, func.count()).group_by(TaskRow.selected, reason)
    by_reason: dict[str, dict[str, int]] = {"selected": {}, "not_selected": {}}
    for selected, why, count in await session.execute(decisions):
        by_reason["selected" if selected else "not_selected"][why] = count
    last = await session.scalar(select(CommitRow).order_by(CommitRow.id.desc()).limit(1))
    version = None if served is None else await session.get(VersionRow, served)
    delivered = await commits.delivered_experiences(session)
    return {
        "tasks": await _by_state(session, TaskRow.state),
        "selection": by_reason,
        "groups": await _by_state(session, GroupRow.state),
        "runs": await _by_state(session, RunRow.state),
        "failed_runs": await _newest_failures(session),
        "feedback": await _by_state(session, FeedbackTargetRow.state),
        "commits": await _by_state(session, CommitRow.state),
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
        "facade": await facade.overview(session),
        "experiences_ready": await commits.ready_experiences(session),
        "experiences_delivered": delivered,
        "version": None
        if version is None
        else {
            "version": version.version,
            "seen_at": version.seen_at,
            "last_commit": version.last_commit_id,
            "experiences_since": delivered - version.experiences,
        },
    }


async def task_overview(session: AsyncSession, task_id: str) -> dict[str, Any] | None:
    """One task with its calls, groups and runs, without bodies; None where there is none of this id."""
    task = await session.get(TaskRow, task_id)
    if task is None:
        return None
    calls = await session.scalars(select(CallRow).where(CallRow.task_id == task_id).order_by(CallRow.position))
    groups = await session.scalars(select(GroupRow).where(GroupRow.task_id == task_id).order_by(GroupRow.id))
    return {
        "task_id": task.id,
        "session_id": task.session_id,
        "state": task.state,
        "decided": task.decided,
        "selected": task.selected,
        "reason": task.reason,
        "labels": task.labels,
        "metadata": task.meta,
        "calls": [{"position": call.position, "msg_id": call.msg_id, "latency": call.latency} for call in calls],
        "groups": [await _group(session, group) for group in groups],
    }


async def _group(session: AsyncSession, group: GroupRow) -> dict[str, Any]:
    runs = await session.scalars(select(RunRow).where(RunRow.group_id == group.id).order_by(RunRow.run_id))
    return {
        "group_id": group.id,
        "state": group.state,
        "commit": group.commit_id,
        "runs": [
            {
                "run_id": run.run_id,
                "state": run.state,
                "msg_id": run.msg_id,
                "reward": run.reward,
                "breakdown": run.breakdown,
                "policy_version": run.policy_version,
                "reason": run.reason,
            }
            for run in runs
        ],
    }


async def _by_state(session: AsyncSession, column: Any) -> dict[str, int]:
    return dict((await session.execute(select(column, func.count()).group_by(column))).all())


async def _newest_failures(session: AsyncSession) -> list[dict[str, Any]]:
    query = select(RunRow.group_id, RunRow.run_id, RunRow.reason).where(RunRow.state == "failed")
    rows = await session.execute(query.order_by(RunRow.updated_at.desc()).limit(5))
    return [{"group_id": group, "run_id": run, "reason": reason} for group, run, reason in rows]
