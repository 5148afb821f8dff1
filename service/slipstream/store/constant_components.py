"""Components of rewards that have given one value for a long time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.runs import GroupRow, RunRow

_LOOKED_AT = 1000
"""Newest runs among which scored ones are looked for."""

_NEWEST = 200
"""Scored runs whose breakdowns are read: each is decrypted, with each scrape."""

_ENOUGH_RUNS, _ENOUGH_TASKS = 50, 5
"""Values and tasks from which on it is no accident: the runs of one task may well be alike."""


@dataclass(frozen=True, slots=True)
class ConstantComponent:
    """A component that gave the same value to each of the newest runs that it judged.

    Attributes:
        runs: that it gave this value to, without a break; `tasks`: whose runs they are.
    """

    name: str
    value: float
    runs: int
    tasks: int


async def constant_components(session: AsyncSession, names: Collection[str]) -> list[ConstantComponent]:
    """Those of these components that are constant over enough runs and tasks, by name."""
    if not names:
        return []
    recent = select(RunRow.id).order_by(RunRow.id.desc()).limit(_LOOKED_AT).subquery()
    query = select(RunRow.breakdown, GroupRow.task_id).join(recent, recent.c.id == RunRow.id)
    query = query.join(GroupRow, GroupRow.id == RunRow.group_id).where(RunRow.reward.is_not(None))
    rows = (await session.execute(query.order_by(RunRow.id.desc()).limit(_NEWEST))).all()
    found = []
    for name in sorted(names):
        judged = [(row.breakdown[name], row.task_id) for row in rows if row.breakdown and name in row.breakdown]
        values = [(value, task) for value, task in judged if value is not None]
        alike = next((place for place, (value, _) in enumerate(values) if value != values[0][0]), len(values))
        tasks = len({task for _, task in values[:alike]})
        if alike >= _ENOUGH_RUNS and tasks >= _ENOUGH_TASKS:
            found.append(ConstantComponent(name, values[0][0], alike, tasks))
    return found
