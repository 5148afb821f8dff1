"""The registry of the policy's versions: which there are, what each came from, its state, and whether it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import aliases, evaluations
from slipstream.store.commits import delivered_experiences
from slipstream.store.states import VERSIONS_IN_USE, CommitState, GroupState, VersionState, move
from slipstream.store.tables.commits import CommitRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import VersionRow

KeptBy = Literal["sight", "hand", "alias", "rollout"]


class InUse(Exception):
    """The version is needed, and is not released; the text says by what."""


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint, as it is in the Trainer's directory.

    Attributes:
        made_at: when it was written, Unix seconds by the clock of the file system.
        parent: the version that its training went on from.
        experiences: that it was trained on and its parent was not; None where the Trainer does not say.
        metrics: of its training step; None where the Trainer does not say.
    """

    version: int
    checkpoint: str
    made_at: float
    parent: int | None
    experiences: int | None = None
    metrics: Mapping[str, float] | None = None
    dataset: Mapping[str, Any] | None = None


async def record_version(session: AsyncSession, version: int, now: float) -> int | None:
    """Remember a policy version that is served now. Returns the one that was served before it, if any.

    A version that is served again after another (a rollback, a job of another name) counts from now on: what was
    delivered meanwhile is not for it to be trained on. One that comes again after an older one, as the numbers do
    after a rollback, was trained anew: on what was committed until now; unless the version of that number is needed.
    """
    served = select(VersionRow.version).where(VersionRow.seen_at.is_not(None))
    before = await session.scalar(served.order_by(VersionRow.seen_at.desc(), VersionRow.version.desc()).limit(1))
    if before == version:
        return before
    last = await _last_commit(session)
    experiences = await delivered_experiences(session)
    known = await session.get(VersionRow, version)
    if known is None:
        parent = before if before is not None and before < version else None
        known = VersionRow(version=version, found_at=now, last_commit_id=last, parent=parent)
        session.add(known)
        known.trained_on = await _trained_on(session, known, None)
    elif known.seen_at is not None and known.checkpoint is None and before and before < version:
        # after version 0 the Explorer has only been started again; of a checkpoint its time tells (`record_found`)
        if await _is_needed(session, known):
            known.replaced_at = now if known.replaced_at is None else known.replaced_at
        else:
            known.last_commit_id, known.parent = last, before
            await _train_anew(session, known, None, now)
    known.seen_at, known.experiences = now, experiences
    return before


async def record_found(session: AsyncSession, found: Found, now: float) -> bool:
    """Remember a checkpoint. Returns whether it is a new one.

    A checkpoint of another time is another training that reached the same number, as after a rollback. A version that
    is kept, in use or has an alias stays what it was, and only the time is noted; any other begins anew.
    """
    row = await session.get(VersionRow, found.version)
    if row is None:
        row = VersionRow(version=found.version, found_at=now, last_commit_id=await _last_commit(session))
        row.parent = await _below(session, found.version) if found.parent is None else found.parent
        session.add(row)
        row.trained_on = await _trained_on(session, row, found)
    elif row.made_at is None:  # served before its files were seen
        row.parent = row.parent if found.parent is None else found.parent
        row.trained_on = await _trained_on(session, row, found)
    elif row.made_at == found.made_at:
        row.checkpoint = found.checkpoint
        return False
    elif await _is_needed(session, row):
        if row.replaced_at is not None:
            return False
        row.replaced_at = now
        return True
    else:
        row.last_commit_id, row.parent = await _last_commit(session), found.parent
        await _train_anew(session, row, found, now)
    row.checkpoint, row.made_at = found.checkpoint, found.made_at
    row.metrics = None if found.metrics is None else dict(found.metrics)
    return True


async def known(session: AsyncSession) -> dict[int, float | None]:
    """The time of the checkpoint of each version, by its number; None where no checkpoint was found."""
    rows = await session.execute(select(VersionRow.version, VersionRow.made_at))
    return {row.version: row.made_at for row in rows}


async def made_at(session: AsyncSession, version: int) -> float | None:
    """The time of the checkpoint of a version; None where no checkpoint was found, or there is no such version."""
    row = await session.get(VersionRow, version)
    return None if row is None else row.made_at


async def kept(session: AsyncSession) -> dict[int, tuple[str, KeptBy]]:
    """The folder of each kept version, and why it is kept, by its number."""
    columns = select(VersionRow.version, VersionRow.kept_path, VersionRow.kept_by)
    rows = await session.execute(columns.where(VersionRow.kept_path.is_not(None)))
    return {row.version: (row.kept_path, row.kept_by) for row in rows}


async def keep(session: AsyncSession, version: int, path: str, by: KeptBy, now: float) -> bool:
    """Note that the weights of a version are kept in a folder. Returns False if there is no such version.

    One that was kept on sight and is asked for now is not released by itself any more.
    """
    row = await session.get(VersionRow, version)
    if row is None:
        return False
    if row.kept_path is None or row.kept_by == "sight":
        row.kept_at = row.kept_at if row.kept_path is not None else now
        row.kept_by = by
    row.kept_path = path
    if row.state is VersionState.SEEN:
        row.state, row.state_at = move(row.state, VersionState.KEPT), now
    return True


async def release(session: AsyncSession, version: int, now: float) -> bool:
    """Note that the weights of a version are not kept any more. Returns whether they were.

    Raises:
        InUse: an alias names it, or users are answered by it.
    """
    row = await session.get(VersionRow, version)
    if row is None or row.kept_path is None:
        return False
    if row.state in VERSIONS_IN_USE:
        raise InUse(f"it is {row.state}")
    if names := (await aliases.of(session, [version]))[version]:
        raise InUse(f"it has the alias {', '.join(names)}")
    await lose(session, version, now)
    return True


async def lose(session: AsyncSession, version: int, now: float) -> None:
    """Note that the weights of a version are gone although they were to be kept. Aliases go on naming it."""
    row = await session.get(VersionRow, version)
    if row is not None:
        row.kept_path = row.kept_at = row.kept_by = None
        if row.state is VersionState.KEPT:
            row.state, row.state_at = move(row.state, VersionState.SEEN), now


async def set_state(session: AsyncSession, version: int, state: VersionState, now: float) -> bool:
    """Change the state of a version. Returns False if there is no such version.

    Raises:
        ImpossibleTransition: it cannot follow the present one.
    """
    row = await session.get(VersionRow, version)
    if row is None:
        return False
    if row.state is not state:
        row.state, row.state_at = move(row.state, state), now
    return True


async def replaced(session: AsyncSession, version: int) -> bool:
    """Return whether the Trainer's step of this number is another one than the version that is kept."""
    row = await session.get(VersionRow, version)
    return row is not None and row.replaced_at is not None


async def note_tested(session: AsyncSession, version: int, now: float) -> None:
    """Note that a version was compared with production; one that users were answered by stays what it is."""
    row = await session.get(VersionRow, version)
    if row is not None and row.state in (VersionState.SEEN, VersionState.KEPT):
        row.state, row.state_at = move(row.state, VersionState.TESTED), now


async def count(session: AsyncSession) -> dict[VersionState, int]:
    """Count versions by state; every state is there."""
    rows = await session.execute(select(VersionRow.state, func.count()).group_by(VersionRow.state))
    found = {row[0]: row[1] for row in rows}
    return {state: found.get(state, 0) for state in VersionState}


async def _below(session: AsyncSession, version: int) -> int | None:
    return await session.scalar(select(func.max(VersionRow.version)).where(VersionRow.version < version))


async def _last_commit(session: AsyncSession) -> int | None:
    newest = select(CommitRow.id).where(CommitRow.state == CommitState.DELIVERED).order_by(CommitRow.id.desc())
    return await session.scalar(newest.limit(1))


async def _is_needed(session: AsyncSession, row: VersionRow) -> bool:
    """Return whether a version stays what it was when another training reaches its number."""
    if row.kept_path is not None or row.state in VERSIONS_IN_USE:
        return True
    return bool((await aliases.of(session, [row.version]))[row.version])


async def _train_anew(session: AsyncSession, row: VersionRow, found: Found | None, now: float) -> None:
    row.state, row.state_at = move(row.state, VersionState.SEEN), now
    row.reward_count, row.reward_sum, row.reward_squares = 0, 0.0, 0.0
    row.metrics = row.weights = row.replaced_at = None
    await evaluations.supersede(session, row.version)
    row.trained_on = await _trained_on(session, row, found)


async def _trained_on(session: AsyncSession, row: VersionRow, found: Found | None) -> dict[str, Any] | None:
    """Sum up the commits between the parent of a version and itself, and the rewards that they delivered; None where
    no parent is known. The number of experiences is the Trainer's, where it says so.

    A version of a data set was trained on that, and on no commit, unless experiences were trained on in the same steps.
    """
    experiences = None if found is None else found.experiences
    if found is not None and found.dataset is not None:
        commits = await _commits(session, row, experiences) if experiences else None
        return {**(commits or _sums(experiences=0, commits=0, groups=0)), "dataset": dict(found.dataset)}
    return await _commits(session, row, experiences)


async def _commits(session: AsyncSession, row: VersionRow, experiences: int | None) -> dict[str, Any] | None:
    """Sum up the commits between a version and its parent; `experiences` are those that the Trainer says."""
    parent = None if row.parent is None else await session.get(VersionRow, row.parent)
    if parent is None and row.parent != 0:  # version 0 is the model that was given: nothing was delivered before it
        return None if experiences is None else _sums(experiences=experiences)
    after, up_to = (0 if parent is None else parent.last_commit_id or 0), row.last_commit_id or 0
    commits = select(
        func.count(CommitRow.id).label("commits"),
        func.min(CommitRow.id).label("first"),
        func.max(CommitRow.id).label("last"),
        func.sum(CommitRow.groups).label("groups"),
        func.sum(CommitRow.experiences).label("experiences"),
    ).where(CommitRow.state == CommitState.DELIVERED, CommitRow.id > after, CommitRow.id <= up_to)
    between = (await session.execute(commits)).one()
    rewards = select(func.avg(RunRow.reward)).join(GroupRow, GroupRow.id == RunRow.group_id)
    rewards = rewards.where(GroupRow.commit_id > after, GroupRow.commit_id <= up_to, RunRow.reward.is_not(None))
    return _sums(
        commits=between.commits,
        first_commit=between.first,
        last_commit=between.last,
        groups=int(between.groups or 0),
        experiences=int(between.experiences or 0) if experiences is None else experiences,
        reward_mean=await session.scalar(rewards.where(GroupRow.state == GroupState.DELIVERED)),
    )


def _sums(
    *,
    experiences: int,
    commits: int | None = None,
    first_commit: int | None = None,
    last_commit: int | None = None,
    groups: int | None = None,
    reward_mean: float | None = None,
) -> dict[str, Any]:
    return {
        "commits": commits,
        "first_commit": first_commit,
        "last_commit": last_commit,
        "groups": groups,
        "experiences": experiences,
        "reward_mean": reward_mean,
    }
