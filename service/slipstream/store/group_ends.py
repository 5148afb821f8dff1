"""The end of groups, once each of their runs has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean
from typing import Any

import structlog
from sqlalchemy import Row, event, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import update_rows
from slipstream.store.states import GroupState, RunState, move
from slipstream.store.tables.runs import GroupRow, RunRow

_log = structlog.get_logger(__name__)

_EndedRun = Row[str, str, RunState, float | None, int | None]
"""Columns of a group that may have ended: group, task, state, reward and policy version of a run."""

_ALONE = "not delivered: no other run of its group has a reward, and there is nothing to compare it with"
"""A group was planned with several runs, and one is left. Trinity would take its reward for its advantage, as if it
were that much better than others; with some algorithms its commit would fail, and lose all that goes with it."""


async def end_groups(session: AsyncSession, names: Collection[str], now: float) -> None:
    """Once each run of a group has ended, the group is ready, or dropped where too few runs have a reward."""
    of_group: dict[str, list[_EndedRun]] = {}
    for row in await session.execute(
        select(RunRow.group_id, GroupRow.task_id, RunRow.state, RunRow.reward, RunRow.policy_version)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .where(RunRow.group_id.in_(names), GroupRow.state == GroupState.RUNNING)
    ):
        of_group.setdefault(row.group_id, []).append(row)
    ends, lonely = [], []
    for name, rows in of_group.items():
        states = [row.state for row in rows]
        if not set(states) <= {RunState.SCORED, RunState.FAILED, RunState.QUARANTINED}:
            continue
        alone = states.count(RunState.SCORED) == 1 and len(states) > 1
        lonely += [name] if alone else []
        end_state = GroupState.READY if RunState.SCORED in states and not alone else GroupState.DROPPED
        ends.append((move(GroupState.RUNNING, end_state), now, name))
        _log_once_stored(session, ends[-1][0], rows)
    await update_rows(session, GroupRow, ("state", "updated_at"), ends)
    # by the reward: by the state, SQLite would go through all that were ever scored
    rewarded = update(RunRow).where(RunRow.reward.is_not(None)).execution_options(synchronize_session=False)
    if lonely:
        await session.execute(rewarded.where(RunRow.group_id.in_(lonely)).values(reason=_ALONE))
    if others := [name for *_, name in ends if name not in lonely]:  # one of them may have been alone before
        of_others = rewarded.where(RunRow.group_id.in_(others), RunRow.reason.is_not(None))
        await session.execute(of_others.values(reason=None))


def _log_once_stored(session: AsyncSession, state: str, runs: Sequence[_EndedRun]) -> None:
    """Log the end of a group, when the transaction that ends it is committed: one line for all of its runs."""
    rewards = [run.reward for run in runs if run.state == RunState.SCORED]
    said: dict[str, Any] = {"state": state, "runs": len(runs), "failed": len(runs) - len(rewards)}
    if rewards:
        said |= {"reward_mean": fmean(rewards), "reward_min": min(rewards), "reward_max": max(rewards)}
    said = {name: round(value, 4) if isinstance(value, float) else value for name, value in said.items()}
    versions = sorted({run.policy_version for run in runs if run.policy_version is not None})
    if versions:
        said["policy_version"] = versions[0] if len(versions) == 1 else versions
    log = _log.info if rewards else _log.warning
    ids = {"task_id": runs[0].task_id, "group_id": runs[0].group_id}

    def committed(_: object) -> None:
        log("group_ended", **ids, **said)

    event.listen(session.sync_session, "after_commit", committed, once=True)
