"""The groups of a delivery, whoever ran them: shadow calls, agent replays, or clients of the facade.

Runs of the sidecar and of its clients are in `groups`, those of Trinity's own clients in `facade_groups`. From here on
they are one thing (`experiences`): answers with their rewards that go out together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import facade, planning, version_rewards, webhook
from slipstream.store.experiences import Experience, ReadyGroup
from slipstream.store.open_tasks import task_goes_on
from slipstream.store.replays import KIND
from slipstream.store.states import GROUPS_UNDER_WAY, WAITING_FACADE_GROUPS, FacadeGroupState, GroupState, move
from slipstream.store.tables.facade import FacadeGroupRow
from slipstream.store.tables.runs import GroupRow, RunCallRow, RunRow

_NO_TRIES_LEFT = 1_000_000_000
"""Count of losses that is above any `runs.max_attempts`."""


@dataclass(frozen=True, slots=True)
class Requeued:
    """Result for groups that the Explorer had lost."""

    run_again: int = 0
    repaired: int = 0
    dropped: int = 0
    lost: int = 0


# An agent replay's answers are in `run_calls`, that of a shadow call in its run.
_CHOICES = func.coalesce(RunCallRow.choices, 1)


def _waits_for_its_task() -> ColumnElement[bool]:
    """The condition under which a ready group is not to be taken yet. What a client ran has the rewards of its own
    agent for the most part, and does not wait for production."""
    return GroupRow.by_client.is_(False) & task_goes_on()


def _may_be_taken() -> tuple[ColumnElement[bool], ...]:
    return GroupRow.state == GroupState.READY, ~_waits_for_its_task()


async def ready_experiences(session: AsyncSession) -> int:
    """Count the experiences that a commit would take: each answer of a run with a reward, and each choice of an
    answer."""
    query = select(func.sum(_CHOICES)).select_from(RunRow).join(GroupRow, GroupRow.id == RunRow.group_id)
    query = query.outerjoin(RunCallRow, RunCallRow.run_pk == RunRow.id).where(*_may_be_taken())
    query = query.where(RunRow.reward.is_not(None))  # by state, SQLite would go through all scored
    return (await session.scalar(query) or 0) + await facade.experiences(session, FacadeGroupState.READY)


async def oldest_waiting(session: AsyncSession) -> float | None:
    """Return since when the oldest group of the sidecar's own waits that a commit takes or would take; None without."""
    query = select(func.min(GroupRow.updated_at)).where(GroupRow.state.in_((GroupState.READY, GroupState.COMMITTING)))
    oldest: float | None = await session.scalar(query.where(~_waits_for_its_task()))
    return oldest


async def take_ready(session: AsyncSession, commit_id: int) -> None:
    """Take every ready group into a commit, but for those whose task goes on. From here on their rewards stay."""
    for group in (await session.scalars(select(GroupRow).where(*_may_be_taken()))).all():
        group.state, group.commit_id = move(group.state, GroupState.COMMITTING), commit_id
    await session.flush()
    await facade.take_ready(session, commit_id)


async def of_commit(session: AsyncSession, commit_id: int) -> list[ReadyGroup]:
    """Return the groups of a commit that is being sent, in a stable order. Each answer of a run has its reward."""
    answer = func.coalesce(RunCallRow.msg_id, RunRow.msg_id)
    query = (
        select(GroupRow.id, GroupRow.by_client, answer, RunRow.reward, RunRow.run_id, _CHOICES)
        .join(RunRow, RunRow.group_id == GroupRow.id)
        .outerjoin(RunCallRow, RunCallRow.run_pk == RunRow.id)
        .where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING, RunRow.reward.is_not(None))
        .order_by(GroupRow.updated_at, GroupRow.id, RunRow.run_id, RunCallRow.started_at, RunCallRow.id)
    )
    found: dict[tuple[str, bool], list[Experience]] = {}
    for name, by_client, msg_id, reward, run_id, choices in await session.execute(query):
        assert reward is not None, "as asked for"
        found.setdefault((name, by_client), []).append(Experience(msg_id, reward, run_id, choices))
    own = [
        ReadyGroup(name, tuple(experiences), "client" if by_client else "sidecar")
        for (name, by_client), experiences in found.items()
    ]
    return own + await facade.of_commit(session, commit_id)


async def deliver(session: AsyncSession, commit_id: int, now: float) -> None:
    """Mark the groups that this commit still holds as delivered."""
    await version_rewards.add_rewards(session, commit_id)
    own = update(GroupRow).where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING)
    delivered = move(GroupState.COMMITTING, GroupState.DELIVERED)
    await session.execute(own.values(state=delivered, updated_at=now))
    clients = update(FacadeGroupRow).where(FacadeGroupRow.commit_id == commit_id)
    clients = clients.where(FacadeGroupRow.state == FacadeGroupState.COMMITTING)
    theirs = move(FacadeGroupState.COMMITTING, FacadeGroupState.DELIVERED)
    await session.execute(clients.values(state=theirs, updated_at=now))


async def drop(session: AsyncSession, groups: Sequence[ReadyGroup], reason: str, now: float) -> None:
    """Drop these groups of a commit."""
    for group in groups:  # one by one, here and below: a database takes a few thousand names in one statement
        if group.run_by == "facade":
            await facade.drop(session, group.id, reason, now)
        else:
            row = await session.get_one(GroupRow, group.id)
            row.state, row.updated_at = move(row.state, GroupState.DROPPED), now


async def requeue(
    session: AsyncSession,
    groups: Sequence[ReadyGroup],
    reason: str,
    now: float,
    *,
    limit: int,
    webhook_runs: bool,
    repaired: bool,
) -> Requeued:
    """The Explorer lost these groups: plan each anew, at most `limit` times over.

    Args:
        webhook_runs: there is an endpoint that runs agents again. Without it, what one had run comes to nothing.
        repaired: the Explorer takes again those that cannot be run again. Else they stay lost.
    """
    run_again = again = dropped = 0
    for group in groups:
        if group.run_by == "facade":
            again += await facade.requeue(session, group.id, reason, limit if repaired else None, now)
            continue
        row = await session.get_one(GroupRow, group.id)
        row.updated_at = now
        if row.by_client:
            again += _requeue_of_client(row, limit if repaired else None)
        elif row.generation + 1 >= limit or (row.kind == KIND and not webhook_runs):
            row.state = move(row.state, GroupState.DROPPED)
            dropped += 1
        else:
            row.state = move(row.state, GroupState.RERUN)
            run_again += 1
            await (webhook if row.kind == KIND else planning).plan_again(session, row, now)
    return Requeued(run_again, again, dropped, len(groups) - run_again - again - dropped)


async def never_repair(session: AsyncSession) -> None:
    """Have no client's group that is here now be given to the Explorer again if it is lost: its answers may have been
    trained on after this state of the store was saved."""
    own = update(GroupRow).where(GroupRow.by_client.is_(True), GroupRow.state.in_(GROUPS_UNDER_WAY))
    await session.execute(own.values(generation=_NO_TRIES_LEFT).execution_options(synchronize_session=False))
    here = (*WAITING_FACADE_GROUPS, FacadeGroupState.COMMITTING)
    clients = update(FacadeGroupRow).where(FacadeGroupRow.state.in_(here)).values(attempts=_NO_TRIES_LEFT)
    await session.execute(clients.execution_options(synchronize_session=False))


def _requeue_of_client(group: GroupRow, limit: int | None) -> bool:
    """The Explorer lost a client's group. With a limit it takes it again, so many times. Returns whether it does."""
    if limit is None or group.generation + 1 >= limit:
        group.state = move(group.state, GroupState.LOST)
        return False
    group.state, group.commit_id = move(group.state, GroupState.READY), None
    group.generation += 1
    return True
