"""What the store holds, counted for people: all that is under way, and the newest of what has ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import commits, facade, replays
from slipstream.store.counts import by_state, newest
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.commits import CommitRow
from slipstream.store.tables.feedback import FeedbackTargetRow
from slipstream.store.tables.runs import GroupRow, RunRow

_RUNS_UNDER_WAY = ("pending", "running", "open", "answered")


async def overview(session: AsyncSession) -> dict[str, Any]:
    """Counts of everything by state, and the last of what failed and what was delivered."""
    last = await session.scalar(select(CommitRow).order_by(CommitRow.id.desc()).limit(1))
    return {
        "tasks": await by_state(session, TaskRow.state, TaskRow.updated_at, TaskRow.decided.is_(False)),
        "selection": await decisions(session),
        "groups": await by_state(
            session, GroupRow.state, GroupRow.updated_at, GroupRow.state.in_(("running", "ready", "committing"))
        ),
        "runs": await by_state(session, RunRow.state, RunRow.id, RunRow.state.in_(_RUNS_UNDER_WAY)),
        "failed_runs": await _newest_failures(session),
        "feedback": await by_state(
            session, FeedbackTargetRow.state, FeedbackTargetRow.id, FeedbackTargetRow.state == "waiting"
        ),
        "commits": await by_state(session, CommitRow.state, CommitRow.id, CommitRow.state.in_(("sending", "asked"))),
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


async def task_overview(session: AsyncSession, task_id: str) -> dict[str, Any] | None:
    """One task with its calls, groups and runs, without bodies; None where there is none of this id."""
    task = await session.get(TaskRow, task_id)
    if task is None:
        return None
    calls = select(CallRow.position, CallRow.msg_id, CallRow.latency).where(CallRow.task_id == task_id)
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
        "calls": [
            {"position": position, "msg_id": msg_id, "latency": latency}
            for position, msg_id, latency in await session.execute(calls.order_by(CallRow.position))
        ],
        "groups": [await _group(session, group) for group in groups],
    }


async def _group(session: AsyncSession, group: GroupRow) -> dict[str, Any]:
    told = (
        RunRow.run_id, RunRow.state, RunRow.msg_id, RunRow.reward, RunRow.breakdown, RunRow.policy_version,
        RunRow.reason,
    )  # fmt: skip
    rows = await session.execute(select(RunRow.id, *told).where(RunRow.group_id == group.id).order_by(RunRow.run_id))
    runs = {row.id: dict(row._mapping) for row in rows}
    if group.kind == replays.KIND:
        calls = await replays.msg_ids(session, runs)
        for pk, run in runs.items():
            del run["msg_id"]
            run["msg_ids"] = calls.get(pk, [])
    return {
        "group_id": group.id,
        "kind": group.kind,
        "state": group.state,
        "commit": group.commit_id,
        "runs": [{name: value for name, value in run.items() if name != "id"} for run in runs.values()],
    }


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
        "task_id": task_id,
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


async def _newest_failures(session: AsyncSession) -> list[dict[str, Any]]:
    query = select(RunRow.group_id, RunRow.run_id, RunRow.reason).where(RunRow.state == "failed")
    rows = await session.execute(query.order_by(RunRow.due_at.desc()).limit(5))
    return [{"group_id": group, "run_id": run, "reason": reason} for group, run, reason in rows]
