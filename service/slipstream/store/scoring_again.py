"""Runs that are scored again, because something new is known of them, and the groups whose rewards may still change."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Exists, Select, and_, case, exists, null, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.bulk import batches
from slipstream.store.quarantine import MOST_DEATHS
from slipstream.store.states import GroupState, RunState, move
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow

_OPEN_GROUPS = (GroupState.RUNNING, GroupState.READY)
# In words for which SQLite has no index: by the state it would go through all groups that wait, or were ever dropped.
_UNDELIVERED = GroupRow.state.not_in([state for state in GroupState if state not in _OPEN_GROUPS])
OPEN = or_(
    _UNDELIVERED,
    and_(
        GroupRow.state.not_in([state for state in GroupState if state != GroupState.DROPPED]),
        GroupRow.commit_id.is_(None),
    ),
)
"""Groups whose rewards may still change: nothing of them was delivered. One that was dropped because its runs could
not be scored comes back with what is known now; one that a delivery dropped may have been trained on in part."""

_ENDED_GROUPS = (GroupState.READY, GroupState.DROPPED)
_ENDED = GroupRow.state.not_in([state for state in GroupState if state not in _ENDED_GROUPS])
_AGAIN = (RunState.ANSWERED, RunState.SCORED, RunState.FAILED)
"""States of runs that may be scored again, if they have an answer."""


def has_open_groups() -> Exists:
    """Return the condition under which the task of a select may have runs for `score_tasks_again`."""
    return exists().where(GroupRow.task_id == TaskRow.id, OPEN)


async def score_tasks_again(session: AsyncSession, task_ids: Sequence[str], *, dropped: bool = True) -> bool:
    """Something new is known of tasks: a reference answer, say, or further calls. Returns True when a run is to be
    scored again.

    Args:
        dropped: also runs of groups that were dropped because they could not be scored.
    """
    may_change = OPEN if dropped else _UNDELIVERED
    again: list[int] = []
    for some in batches(task_ids):
        again += await to_be_calculated(session, GroupRow.task_id.in_(some), may_change)
    return await score_again(session, again)


def rewards_may_change(group: GroupRow) -> bool:
    """Return whether nothing of the group was delivered: `OPEN`, of a row."""
    if group.state == GroupState.DROPPED:
        return group.commit_id is None
    return group.state in _OPEN_GROUPS


def runs_of(*of_groups: ColumnElement[bool]) -> Select[int]:
    """Select the runs of groups."""
    return select(RunRow.id).join(GroupRow, GroupRow.id == RunRow.group_id).where(*of_groups)


async def to_be_calculated(session: AsyncSession, *of_groups: ColumnElement[bool]) -> list[int]:
    """The runs of groups, but for those that their agents gave a reward: it is not for a calculator to replace."""
    found = await session.execute(runs_of(*of_groups).add_columns(RunRow.ending))
    return [pk for pk, ending in found if (ending or {}).get("reward") is None]


async def score_again(session: AsyncSession, pks: Sequence[int]) -> bool:
    """Send runs that have an answer back to be scored with what is known when they are due. Those that were set apart
    stay, also if a person dropped them since: the training side may die of one once more."""
    for state in _AGAIN:
        answered = move(state, RunState.ANSWERED)
    for group in _ENDED_GROUPS:
        running = move(group, GroupState.RUNNING)
    ended = RunRow.state.not_in([state for state in RunState if state not in _AGAIN]), RunRow.msg_id.is_not(None)
    alive = (RunRow.state == RunState.ANSWERED) | (RunRow.tries < MOST_DEATHS)
    # of those that were scored at once: their grace is over, also if that was by a clock that was ahead then
    due_at = case((RunRow.state == RunState.ANSWERED, RunRow.due_at), else_=0.0)
    nothing = {"reward": None, "breakdown": null(), "reason": None}
    again = update(RunRow).values(state=answered, due_at=due_at, revision=RunRow.revision + 1, **nothing)
    groups: set[str] = set()
    for some in batches(pks):
        sent_back = again.where(RunRow.id.in_(some), *ended, alive).returning(RunRow.group_id)
        groups.update(await session.scalars(sent_back))
    for some_groups in batches(sorted(groups)):
        await session.execute(update(GroupRow).where(GroupRow.id.in_(some_groups), _ENDED).values(state=running))
    return bool(groups)
