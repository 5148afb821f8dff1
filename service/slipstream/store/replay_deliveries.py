"""Deliveries of agent replays: each answer of a run has the run's reward."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.experiences import Experience, ReadyGroup
from slipstream.store.replays import KIND
from slipstream.store.states import GroupState, move
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow


async def ready_experiences(session: AsyncSession) -> int:
    """Answers of rewarded runs in groups that are ready, each choice counted."""
    query = (
        select(func.sum(RunCallRow.choices))
        .join(RunRow, RunRow.id == RunCallRow.run_pk)
        .join(GroupRow, GroupRow.id == RunRow.group_id)
        .where(GroupRow.state == GroupState.READY, GroupRow.kind == KIND, RunRow.reward.is_not(None))
    )
    return await session.scalar(query) or 0


async def of_commit(session: AsyncSession, commit_id: int) -> list[ReadyGroup]:
    """The groups of a commit that is being sent, in a stable order: each answer of a run has the run's reward."""
    query = (
        select(GroupRow.id, GroupRow.by_client, RunCallRow.msg_id, RunRow.reward, RunRow.run_id, RunCallRow.choices)
        .join(RunRow, RunRow.group_id == GroupRow.id)
        .join(RunCallRow, RunCallRow.run_pk == RunRow.id)
        .where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING, GroupRow.kind == KIND)
        .where(RunRow.reward.is_not(None))
        .order_by(GroupRow.updated_at, GroupRow.id, RunRow.run_id, RunCallRow.started_at, RunCallRow.id)
    )
    groups: dict[tuple[str, bool], list[Experience]] = {}
    for name, by_client, msg_id, reward, run_id, choices in await session.execute(query):
        assert reward is not None, "as asked for"
        groups.setdefault((name, by_client), []).append(Experience(msg_id, reward, run_id, choices))
    return [
        ReadyGroup(name, tuple(experiences), "client" if by_client else "sidecar")
        for (name, by_client), experiences in groups.items()
    ]


def requeue(group: GroupRow, limit: int | None) -> bool:
    """The Explorer lost a client's group. With a limit it takes it again, so many times. Returns whether it does."""
    if limit is None or group.generation + 1 >= limit:
        group.state = move(group.state, GroupState.LOST)
        return False
    group.state, group.commit_id = move(group.state, GroupState.READY), None
    group.generation += 1
    return True
