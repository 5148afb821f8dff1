"""The versions of the policy that were served."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.commits import delivered_experiences
from slipstream.store.states import CommitState
from slipstream.store.tables.commits import CommitRow, VersionRow


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
