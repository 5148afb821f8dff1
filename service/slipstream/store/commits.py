"""Deliveries in the store: each takes the groups that are ready, and is sent, asked for and ended."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import ready_groups
from slipstream.store.experiences import ReadyGroup
from slipstream.store.states import UNFINISHED_COMMITS, CommitState, move
from slipstream.store.tables.commits import CommitRow


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
    counters: tuple[int, int, int],
    *,
    after: int | None,
) -> tuple[Commit, list[ReadyGroup]] | None:
    """Take every ready group into a new commit: from here on their rewards do not change.

    Args:
        trigger: why it is begun.
        counters: the Explorer's: experiences that are ready, in total, and its step.
        after: the last commit when they were read. None is begun if another came since, because they say nothing then.
    """
    if await session.scalar(select(func.max(CommitRow.id))) != after:
        return None
    commit = CommitRow(
        trigger=trigger,
        owner=owner,
        groups=0,
        experiences=0,
        explorer_ready=counters[0],
        explorer_total=counters[1],
        explorer_step=counters[2],
        started_at=now,
    )
    session.add(commit)
    await session.flush()
    await ready_groups.take_ready(session, commit.id)
    ready = await ready_groups.of_commit(session, commit.id)
    commit.groups = len(ready)
    commit.experiences = sum(group.size for group in ready)
    return _commit(commit), ready


def _commit(row: CommitRow) -> Commit:
    return Commit(row.id, row.state, row.owner, row.explorer_ready, row.explorer_total, row.explorer_step)


async def ask(session: AsyncSession, commit_id: int, step: int) -> None:
    """The Explorer, at this step number, is about to be asked to commit: from here on it may have done so."""
    commit = await session.get_one(CommitRow, commit_id)
    commit.state, commit.explorer_step = move(commit.state, CommitState.ASKED), step


async def assume_asked(session: AsyncSession) -> None:
    """Have a delivery that is under way end as if the Explorer had been asked to commit, as it may have been after this
    state of the store was saved."""
    sending = update(CommitRow).where(CommitRow.state == CommitState.SENDING)
    asked = sending.values(state=move(CommitState.SENDING, CommitState.ASKED))
    await session.execute(asked.execution_options(synchronize_session=False))


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


async def delivered_experiences(session: AsyncSession, before: float | None = None) -> int:
    """Experiences delivered so far, or before this time, all together: as the last commit that ended has counted."""
    last = select(CommitRow.delivered)
    if before is None:  # by its number: an earlier one may have been dated by a clock that was ahead
        last = last.where(CommitRow.delivered.is_not(None)).order_by(CommitRow.id.desc())
    else:
        last = last.where(CommitRow.state == CommitState.DELIVERED, CommitRow.ended_at < before)
        last = last.order_by(CommitRow.ended_at.desc(), CommitRow.id.desc())
    return await session.scalar(last.limit(1)) or 0
