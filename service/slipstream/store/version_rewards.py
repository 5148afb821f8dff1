"""Rewards of the runs that each version answered: kept as sums, because runs are deleted after their retention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.states import GroupState
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import VersionRow

_UNDELIVERED = (GroupState.RUNNING, GroupState.READY, GroupState.COMMITTING)
Sums = tuple[int, float, float]
"""Number of rewards, their sum, and the sum of their squares."""


async def add_rewards(session: AsyncSession, commit_id: int) -> None:
    """Add the rewards of the groups that this commit still holds to the versions that answered them; called where they
    are delivered, after which no reward of theirs changes."""
    query = select(
        RunRow.policy_version.label("version"),
        func.count().label("runs"),
        func.sum(RunRow.reward).label("rewards"),
        func.sum(RunRow.reward * RunRow.reward).label("squares"),
    ).join(GroupRow, GroupRow.id == RunRow.group_id)
    mine = query.where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING)
    rewarded = mine.where(RunRow.reward.is_not(None), RunRow.policy_version.is_not(None))
    for row in (await session.execute(rewarded.group_by(RunRow.policy_version))).all():
        await session.execute(
            update(VersionRow)
            .where(VersionRow.version == row.version)
            .values(
                reward_count=VersionRow.reward_count + row.runs,
                reward_sum=VersionRow.reward_sum + row.rewards,
                reward_squares=VersionRow.reward_squares + row.squares,
            )
            .execution_options(synchronize_session=False)
        )


async def undelivered_rewards(session: AsyncSession, versions: Sequence[int]) -> dict[int, Sums]:
    """Rewards of runs whose groups wait for their delivery; those of delivered ones are in the versions' rows."""
    query = (
        select(
            RunRow.policy_version.label("version"),
            func.count().label("runs"),
            func.sum(RunRow.reward).label("rewards"),
            func.sum(RunRow.reward * RunRow.reward).label("squares"),
        )
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .where(GroupRow.state.in_(_UNDELIVERED), RunRow.reward.is_not(None), RunRow.policy_version.in_(versions))
        .group_by(RunRow.policy_version)
    )
    return {row.version: (row.runs, row.rewards, row.squares) for row in await session.execute(query)}


def mean_and_error(count: float, total: float, squares: float) -> dict[str, Any]:
    """Mean and standard error (of the mean, by the sample's variance) of so many rewards."""
    if not count:
        return {"count": 0, "mean": None, "standard_error": None}
    mean = total / count
    error = None
    if count > 1:
        variance = max(0.0, squares - count * mean * mean) / (count - 1)
        error = math.sqrt(variance / count)
    return {"count": int(count), "mean": mean, "standard_error": error}
