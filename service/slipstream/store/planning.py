"""The groups of runs that repeat captured calls, and the names of groups."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.serving.page import PRODUCTION
from slipstream.store.bulk import insert_rows
from slipstream.store.lengths import ID_LENGTH
from slipstream.store.states import GroupState, RunState
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.runs import GroupRow, RunRow


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A call that runs are to repeat: its row and its place."""

    pk: int
    task_id: str
    position: int


def group_id(task_id: str, position: int, generation: int) -> str:
    """The Explorer's task_id for the runs of one call: readable, and within its 64 characters."""
    return suffixed(task_id, f".{position}" + (f"~{generation}" if generation else ""))


def suffixed(name: str, suffix: str) -> str:
    """A name of at most `ID_LENGTH` characters that ends so; a digest stands for what has no room."""
    if len(name) + len(suffix) <= ID_LENGTH:
        return name + suffix
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{name[: ID_LENGTH - len(suffix) - 17]}-{digest}{suffix}"


async def unplanned(session: AsyncSession, task_ids: Sequence[str]) -> list[CapturedCall]:
    """The captured calls of these tasks for which nothing is planned yet, in the order of the tasks. A task whose agent
    is run again itself has none: it is run in one of the two ways. Nor has a call that the policy cannot be asked, or
    that a version of it answered."""
    planned = exists().where(GroupRow.call_id == CallRow.id)
    replayed = exists().where(GroupRow.task_id == CallRow.task_id, GroupRow.kind == "agent_replay")
    query = select(CallRow.id, CallRow.task_id, CallRow.position)
    query = query.where(CallRow.task_id.in_(task_ids), CallRow.problem.is_(None), ~planned, ~replayed)
    query = query.where(or_(CallRow.variant.is_(None), CallRow.variant == PRODUCTION))
    order = {task_id: place for place, task_id in enumerate(task_ids)}
    calls = [CapturedCall(*row) for row in await session.execute(query)]
    return sorted(calls, key=lambda call: (order[call.task_id], call.position))


async def plan(
    session: AsyncSession, calls: Sequence[CapturedCall], repeat_time: int, now: float, generation: int = 0
) -> None:
    """Plan a group for each call: `repeat_time` runs that all start from its prompt."""
    groups = [(group_id(call.task_id, call.position, generation), call) for call in calls]
    await insert_rows(
        session,
        GroupRow,
        ("id", "task_id", "kind", "call_id", "by_client", "generation", "state", "updated_at"),
        [
            (name, call.task_id, "shadow_call", call.pk, False, generation, GroupState.RUNNING, now)
            for name, call in groups
        ],
    )
    await insert_rows(
        session,
        RunRow,
        ("group_id", "run_id", "state", "attempts", "revision", "due_at", "updated_at"),
        [(name, run_id, RunState.PENDING, 0, 0, now, now) for name, _ in groups for run_id in range(repeat_time)],
    )


async def plan_again(session: AsyncSession, group: GroupRow, now: float) -> None:
    """Plan the next generation of a group, with as many runs."""
    count = await session.scalar(select(func.count()).where(RunRow.group_id == group.id)) or 0
    query = select(CallRow.id, CallRow.task_id, CallRow.position).where(CallRow.id == group.call_id)
    call = CapturedCall(*(await session.execute(query)).one())
    await plan(session, [call], count, now, group.generation + 1)
