"""Groups of runs by the version that answered them, found by the commits that delivered them.

Runs have no index by version: there are many of them, and this is the only question that needs one. A version answers
runs from the commit on after which it came, so that its groups are in the commits between that and the following
versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.answer_tokens import completion_tokens
from slipstream.store.states import GroupState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import VersionRow

_WAITING = (GroupState.RUNNING, GroupState.READY, GroupState.COMMITTING)

_AT_ONCE = 500
"""Names in one query: databases bound the parameters of a statement."""

_MOST_ANSWERS, _LONGEST_ANSWER = 800, 32 * 1024
"""Answers that are unpacked for their tokens in one request, and bytes of the longest such one, packed: all of them are
in memory at once."""


@dataclass(frozen=True, slots=True)
class AnsweredGroup:
    """The rewarded runs of one group that one version answered.

    Attributes:
        mean: of their rewards; `squares`: the sum of the rewards' squares.
        alike: all of them have one reward, from which such a group teaches nothing.
        seconds: the mean time of an answer; None if no run says it.
    """

    version: int
    group_id: str
    task_id: str
    runs: int
    mean: float
    squares: float
    alike: bool
    seconds: float | None

    @property
    def spread(self) -> float:
        """The standard deviation of the rewards within the group, as advantages are computed with."""
        variance = self.squares / self.runs - self.mean * self.mean
        return float(max(0.0, variance) ** 0.5)


async def beginnings(session: AsyncSession, versions: Collection[int]) -> dict[int, int]:
    """The last commit before each of these versions came; its runs are delivered after it."""
    query = select(VersionRow.version, VersionRow.last_commit_id).where(VersionRow.version.in_(versions))
    return {row.version: row.last_commit_id or 0 for row in await session.execute(query)}


async def next_beginning(session: AsyncSession, after: int, skip: int = 0) -> int | None:
    """The last commit before the version came that was the first to come after this commit's; None if there is none.

    By the commits, because numbers begin again after a rollback of training.

    Args:
        skip: versions that are passed over.
    """
    last = VersionRow.last_commit_id
    following = select(last).where(last > after).distinct().order_by(last).offset(skip).limit(1)
    return await session.scalar(following)


async def groups_between(session: AsyncSession, after: int, up_to: int | None, limit: int) -> list[str]:
    """The newest groups that were delivered by the commits after one, up to another.

    Args:
        up_to: None also takes the groups that are not delivered yet.
    """
    # the state is looked at afterwards: in the query it would bring an index of all that was ever delivered
    ended = select(GroupRow.id, GroupRow.state).where(GroupRow.commit_id > after)
    if up_to is not None:
        ended = ended.where(GroupRow.commit_id <= up_to)
    rows = await session.execute(ended.order_by(GroupRow.commit_id.desc()).limit(limit))
    found = [row.id for row in rows if row.state is GroupState.DELIVERED]
    if up_to is None:
        waiting = select(GroupRow.id).where(GroupRow.state.in_(_WAITING)).order_by(GroupRow.updated_at.desc())
        found += await session.scalars(waiting.limit(limit))
    return found


async def answered(session: AsyncSession, groups: Iterable[str], begun: Mapping[int, int]) -> list[AnsweredGroup]:
    """The rewards of these groups, by the version that answered them.

    Args:
        begun: the versions that count, with the last commit before each: what was delivered before that was answered by
            another training of the same number.
    """
    found = []
    reward = RunRow.reward
    for some in _batches(groups):
        query = select(
            RunRow.policy_version, RunRow.group_id, GroupRow.task_id, GroupRow.commit_id, func.count().label("runs"),
            func.sum(reward).label("total"), func.sum(reward * reward).label("squares"),
            func.min(reward).label("least"), func.max(reward).label("most"), func.avg(RunRow.latency).label("seconds"),
        ).join(GroupRow, GroupRow.id == RunRow.group_id)  # fmt: skip
        query = query.where(RunRow.group_id.in_(some), reward.is_not(None), RunRow.policy_version.in_(begun))
        by = (RunRow.policy_version, RunRow.group_id, GroupRow.task_id, GroupRow.commit_id)
        found += [
            AnsweredGroup(
                row.policy_version, row.group_id, row.task_id, row.runs, row.total / row.runs, row.squares,
                row.runs > 1 and row.least == row.most, row.seconds,
            )
            for row in await session.execute(query.group_by(*by))
            if row.commit_id is None or row.commit_id > begun[row.policy_version]
        ]  # fmt: skip
    return found


async def lengths(session: AsyncSession, groups: Sequence[str]) -> dict[int, list[int]]:
    """The tokens of the answers of these groups' runs, by the version that gave them, as far as the answers say them.
    Agents' replays are left out, because they have many answers each, and so are answers that are very long."""
    counts: dict[int, list[int]] = {}
    if not groups:
        return counts
    query = select(RunRow.policy_version, RunRow.answer).where(RunRow.group_id.in_(groups[:_AT_ONCE]))
    query = query.where(func.length(RunRow.answer) <= _LONGEST_ANSWER, RunRow.policy_version.is_not(None))
    rows = (await session.execute(query.limit(_MOST_ANSWERS))).all()
    tokens = await asyncio.to_thread(lambda: [completion_tokens(row.answer) for row in rows])
    for row, number in zip(rows, tokens, strict=True):
        if number is not None:
            counts.setdefault(row.policy_version, []).append(number)
    return counts


async def labels_of(session: AsyncSession, tasks: Iterable[str]) -> dict[str, list[str]]:
    """The labels of each of these tasks that is still stored."""
    found: dict[str, list[str]] = {}
    for some in _batches(tasks):
        rows = await session.execute(select(TaskRow.id, TaskRow.labels).where(TaskRow.id.in_(some)))
        found.update((row.id, list(row.labels)) for row in rows)
    return found


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    each = list(dict.fromkeys(names))
    for at in range(0, len(each), _AT_ONCE):
        yield each[at : at + _AT_ONCE]
