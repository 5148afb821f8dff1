"""Deliveries in the store: which groups go out together, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import facade, replay_deliveries, runs, webhook
from slipstream.store.experiences import Experience, ReadyGroup
from slipstream.store.replays import KIND
from slipstream.store.states import UNFINISHED_COMMITS, CommitState, FacadeGroupState, GroupState, move
from slipstream.store.tables.commits import CommitRow, VersionRow
from slipstream.store.tables.facade import FacadeGroupRow
from slipstream.store.tables.runs import GroupRow, RunRow


@dataclass(frozen=True, slots=True)
class Commit:
    """A delivery, as it was when it was read.

    Attributes:
        owner: the sidecar that is at it.
        explorer_ready, explorer_total, explorer_step: the Explorer's counters before the first feedback, and its step
            once more before the commit.
    """

    id: int
    state: CommitState
    owner: int | None
    explorer_ready: int
    explorer_total: int
    explorer_step: int


@dataclass(frozen=True, slots=True)
class Requeued:
    """Result for groups that the Explorer had lost."""

    run_again: int = 0
    repaired: int = 0
    dropped: int = 0
    lost: int = 0


async def ready_experiences(session: AsyncSession) -> int:
    """Scored runs of groups whose runs have all ended, each answer of a replay, and rewarded answers of the facade's
    complete groups."""
    query = (
        select(func.count()).select_from(RunRow).join(GroupRow, GroupRow.id == RunRow.group_id)
        .where(GroupRow.state == GroupState.READY, GroupRow.kind == "shadow_call")
        .where(RunRow.reward.is_not(None))  # by state, SQLite would go through all scored
    )  # fmt: skip
    shadow = await session.scalar(query) or 0
    return (
        shadow
        + await replay_deliveries.ready_experiences(session)
        + await facade.experiences(session, FacadeGroupState.READY)
    )


async def unfinished(session: AsyncSession) -> Commit | None:
    """The delivery that was begun and whose end is not known, if there is one."""
    begun = select(CommitRow).where(CommitRow.state.in_(UNFINISHED_COMMITS))
    row = await session.scalar(begun.order_by(CommitRow.id))
    return None if row is None else _commit(row)


async def last(session: AsyncSession) -> tuple[int, float] | None:
    """The number of the delivery that was begun last, and when, in Unix seconds; None if there was none."""
    newest = select(CommitRow.id, CommitRow.started_at).order_by(CommitRow.id.desc()).limit(1)
    row = (await session.execute(newest)).one_or_none()
    return None if row is None else (row.id, row.started_at)


async def take(session: AsyncSession, commit_id: int, sidecar: int) -> Commit | None:
    """Take an unfinished delivery, so that this sidecar ends it; None where another is at it, or has ended it."""
    commit = await session.get_one(CommitRow, commit_id, populate_existing=True)
    if commit.state not in UNFINISHED_COMMITS or commit.owner not in (None, sidecar):
        return None
    commit.owner = sidecar
    return _commit(commit)


async def held(session: AsyncSession, commit_id: int, sidecar: int) -> bool:
    """Return whether this sidecar holds the unfinished delivery."""
    query = select(CommitRow.id).where(CommitRow.id == commit_id, CommitRow.owner == sidecar)
    return await session.scalar(query.where(CommitRow.state.in_(UNFINISHED_COMMITS))) is not None


async def let_go(session: AsyncSession, *sidecars: int) -> int:
    """Leave the unfinished delivery of these sidecars, if there is one, to whoever is next. Returns how many it is."""
    theirs = update(CommitRow).where(CommitRow.state.in_(UNFINISHED_COMMITS), CommitRow.owner.in_(sidecars))
    left = await session.execute(theirs.values(owner=None).execution_options(synchronize_session=False))
    return left.rowcount  # type: ignore[attr-defined,no-any-return]


async def begin(
    session: AsyncSession,
    trigger: str,
    owner: int,
    now: float,
    *,
    ready: int,
    total: int,
    step: int,
    after: int | None,
) -> tuple[Commit, list[ReadyGroup]] | None:
    """Take every ready group into a new commit: from here on their rewards do not change.

    Args:
        trigger: why it is begun.
        ready, total, step: the Explorer's counters.
        after: the last commit when they were read. None is begun if another came since, because they say nothing then.
    """
    if await session.scalar(select(func.max(CommitRow.id))) != after:
        return None
    commit = CommitRow(
        trigger=trigger,
        owner=owner,
        groups=0,
        experiences=0,
        explorer_ready=ready,
        explorer_total=total,
        explorer_step=step,
        started_at=now,
    )
    session.add(commit)
    await session.flush()
    for group in (await session.scalars(select(GroupRow).where(GroupRow.state == GroupState.READY))).all():
        group.state, group.commit_id = move(group.state, GroupState.COMMITTING), commit.id
    await session.flush()
    await facade.take_ready(session, commit.id)
    groups = await of_commit(session, commit.id)
    commit.groups = len(groups)
    commit.experiences = sum(group.size for group in groups)
    return _commit(commit), groups


def _commit(row: CommitRow) -> Commit:
    return Commit(row.id, row.state, row.owner, row.explorer_ready, row.explorer_total, row.explorer_step)


async def of_commit(session: AsyncSession, commit_id: int) -> list[ReadyGroup]:
    """The groups of a commit that is being sent, in a stable order."""
    query = (
        select(GroupRow.id, RunRow.msg_id, RunRow.reward, RunRow.run_id)
        .join(RunRow, RunRow.group_id == GroupRow.id)
        .where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING, GroupRow.kind == "shadow_call")
        .where(RunRow.reward.is_not(None))
        .order_by(GroupRow.updated_at, GroupRow.id, RunRow.run_id)
    )
    groups: dict[str, list[Experience]] = {}
    for name, msg_id, reward, run_id in await session.execute(query):
        assert msg_id is not None, "a run with a reward was answered"
        assert reward is not None, "as asked for"
        groups.setdefault(name, []).append(Experience(msg_id, reward, run_id))
    shadow = [ReadyGroup(name, tuple(experiences)) for name, experiences in groups.items()]
    return shadow + await replay_deliveries.of_commit(session, commit_id) + await facade.of_commit(session, commit_id)


async def ask(session: AsyncSession, commit_id: int, step: int) -> None:
    """The Explorer, at this step number, is about to be asked to commit: from here on it may have done so."""
    commit = await session.get_one(CommitRow, commit_id)
    commit.state, commit.explorer_step = move(commit.state, CommitState.ASKED), step


async def end(
    session: AsyncSession,
    commit_id: int,
    state: CommitState,
    now: float,
    *,
    experiences: int,
    reason: str | None = None,
) -> None:
    """A commit is over: delivered (so many experiences, with effect), failed or lost."""
    commit = await session.get_one(CommitRow, commit_id)
    commit.delivered = await delivered_experiences(session) + experiences
    commit.state, commit.experiences = move(commit.state, state), experiences
    commit.reason, commit.ended_at = reason, now


async def deliver(session: AsyncSession, commit_id: int, now: float) -> None:
    """Mark the groups that this commit still holds as delivered."""
    own = update(GroupRow).where(GroupRow.commit_id == commit_id, GroupRow.state == GroupState.COMMITTING)
    delivered = move(GroupState.COMMITTING, GroupState.DELIVERED)
    await session.execute(own.values(state=delivered, updated_at=now))
    clients = update(FacadeGroupRow).where(FacadeGroupRow.commit_id == commit_id)
    clients = clients.where(FacadeGroupRow.state == FacadeGroupState.COMMITTING)
    theirs = move(FacadeGroupState.COMMITTING, FacadeGroupState.DELIVERED)
    await session.execute(clients.values(state=theirs, updated_at=now))


async def drop(session: AsyncSession, groups: Sequence[ReadyGroup], reason: str, now: float) -> None:
    """These groups have come to nothing."""
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
            again += replay_deliveries.requeue(row, limit if repaired else None)
        elif row.generation + 1 >= limit or (row.kind == KIND and not webhook_runs):
            row.state = move(row.state, GroupState.DROPPED)
            dropped += 1
        else:
            row.state = move(row.state, GroupState.RERUN)
            run_again += 1
            await (webhook if row.kind == KIND else runs).plan_again(session, row, now)
    return Requeued(run_again, again, dropped, len(groups) - run_again - again - dropped)


async def delivered_experiences(session: AsyncSession, before: float | None = None) -> int:
    """Experiences delivered so far, or before this time, all together: as the last commit that ended has counted."""
    last = select(CommitRow.delivered)
    if before is None:  # by its number: an earlier one may have been dated by a clock that was ahead
        last = last.where(CommitRow.delivered.is_not(None)).order_by(CommitRow.id.desc())
    else:
        last = last.where(CommitRow.state == CommitState.DELIVERED, CommitRow.ended_at < before)
        last = last.order_by(CommitRow.ended_at.desc(), CommitRow.id.desc())
    return await session.scalar(last.limit(1)) or 0


async def record_version(session: AsyncSession, version: int, now: float) -> int | None:
    """Remember a policy version that is served now. Returns the one that was served before it, if any.

    A version that is served again after another (a rollback, a job of another name) counts from now on: what was
    delivered meanwhile is not for it to be trained on. One that comes again after an older one, as the numbers do
    after a rollback, was trained anew: on what was committed until now.
    """
    latest = select(VersionRow.version).order_by(VersionRow.seen_at.desc(), VersionRow.version.desc()).limit(1)
    before = await session.scalar(latest)
    if before == version:
        return before
    newest = select(CommitRow.id).where(CommitRow.state == CommitState.DELIVERED).order_by(CommitRow.id.desc())
    last = await session.scalar(newest.limit(1))
    experiences = await delivered_experiences(session)
    known = await session.get(VersionRow, version)
    if known is None:
        session.add(VersionRow(version=version, seen_at=now, last_commit_id=last, experiences=experiences))
        return before
    known.seen_at, known.experiences = now, experiences
    if before and before < version:  # after version 0 the Explorer has only been started again
        known.last_commit_id = last
    return before
