"""Figures of tasks in a list, and conditions on them: by a statement about their calls and one about their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.dialects.form import Dialect
from slipstream.serving.page import PRODUCTION
from slipstream.store.states import GroupState, RunState
from slipstream.store.tables.capture import CallRow, TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow

AT_ONCE = 500
"""Tasks in one statement, at most: databases bound its parameters."""

_SEARCHED = 20
"""Newest calls of a task among which a problem is looked for, so that a task of thousands costs a page no more."""

_NO_CALLS: dict[str, Any] = {"calls": 0, "latency": None, "dialect": None, "answered_by": None, "problem": None}
_NO_RUNS: dict[str, Any] = {"runs": 0, "failed_runs": 0, "scored_runs": 0, "reward": None, "policy_version": None}


@dataclass(frozen=True, slots=True)
class FigureConditions:
    """Conditions that a task's last call, or one of its runs, has to meet; None is no condition.

    Attributes:
        dialect: of its last call.
        version: that answered the run.
        reward_below, reward_above: the run has a reward, and it is less, or more, than this. All of `version` and these
            hold for the same run.
    """

    dialect: Dialect | None = None
    version: int | None = None
    reward_below: float | None = None
    reward_above: float | None = None

    @property
    def there_are_some(self) -> bool:
        """Return whether there is a condition."""
        return self != FigureConditions()


async def meeting(session: AsyncSession, conditions: FigureConditions, ids: Sequence[str]) -> set[str]:
    """Those of at most `AT_ONCE` tasks that meet the conditions."""
    left = list(ids)
    if left and conditions.dialect is not None:
        left = list(await session.scalars(_last_calls(left, TaskRow.id).where(CallRow.dialect == conditions.dialect)))
    of_run: list[ColumnElement[bool]] = []
    if conditions.version is not None:
        of_run.append(RunRow.policy_version == conditions.version)
    if conditions.reward_below is not None:
        of_run.append(RunRow.reward < conditions.reward_below)
    if conditions.reward_above is not None:
        of_run.append(RunRow.reward > conditions.reward_above)
    if left and of_run:
        left = list(await session.scalars(_of_runs(left, GroupRow.task_id).where(*of_run).distinct()))
    return set(left)


async def figures(session: AsyncSession, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The figures of at most `AT_ONCE` tasks, by their ids."""
    found: dict[str, dict[str, Any]] = {task_id: {**_NO_CALLS, **_NO_RUNS} for task_id in ids}
    if not ids:
        return found
    problem = (
        select(CallRow.problem)
        .where(CallRow.task_id == TaskRow.id, CallRow.problem.is_not(None), CallRow.position > last_place() - _SEARCHED)
        .order_by(CallRow.position.desc())
        .limit(1)
        .correlate(TaskRow)
        .scalar_subquery()
    )
    columns = (TaskRow.id, CallRow.position, CallRow.latency, CallRow.dialect, CallRow.variant, problem)
    for task_id, position, latency, dialect, variant, wrong in await session.execute(_last_calls(ids, *columns)):
        found[task_id] |= {
            "calls": position + 1,
            "latency": latency,
            "dialect": dialect,
            "answered_by": variant or PRODUCTION,
            "problem": wrong,
        }
    of_runs = _of_runs(
        ids,
        GroupRow.task_id,
        func.count(),
        func.count().filter(RunRow.state == RunState.FAILED),
        func.count(RunRow.reward),
        func.avg(RunRow.reward),
        func.min(RunRow.reward),
        func.max(RunRow.reward),
        func.max(RunRow.policy_version),
    ).group_by(GroupRow.task_id)
    for task_id, runs, failed, scored, mean, least, most, version in await session.execute(of_runs):
        reward = {"mean": mean, "least": least, "most": most} if scored else None
        found[task_id] |= {
            "runs": runs,
            "failed_runs": failed,
            "scored_runs": scored,
            "reward": reward,
            "policy_version": version,
        }
    return found


def last_place() -> Any:
    """The position of a task's last call, in a query about tasks."""
    return select(func.max(CallRow.position)).where(CallRow.task_id == TaskRow.id).correlate(TaskRow).scalar_subquery()


def _last_calls(ids: Sequence[str], *columns: Any) -> Select[Any]:
    """A query about the last calls of these tasks. It begins at the tasks, so that one call of each is looked at."""
    last = (CallRow.task_id == TaskRow.id) & (CallRow.position == last_place())
    return select(*columns).select_from(TaskRow).join(CallRow, last).where(TaskRow.id.in_(ids))


def _of_runs(ids: Sequence[str], *columns: Any) -> Select[Any]:
    """A query about the runs of these tasks, without those that others have taken the place of."""
    runs = select(*columns).select_from(GroupRow).join(RunRow, RunRow.group_id == GroupRow.id)
    return runs.where(GroupRow.task_id.in_(ids), GroupRow.state != GroupState.RERUN)
