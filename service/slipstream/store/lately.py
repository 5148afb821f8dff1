"""What went wrong in the store lately, and what has waited too long: for the sidecar's view of itself."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables import CommitRow, FacadeGroupRow, GroupRow, VersionRow


@dataclass(frozen=True, slots=True)
class Lately:
    """
    Attributes:
        last_delivery: Unix seconds; None before the first.
        untrained: experiences that were delivered before `old`, and since the served version appeared.
        commits_lost: commits since `recent` whose groups the Explorer lost.
        groups_dropped: groups since `recent` that a delivery gave up.
        facade_lost: groups of the facade since `recent` that were lost or dropped.
        facade_reason: why, for the newest of them.
    """

    last_delivery: float | None
    untrained: int
    commits_lost: int
    groups_dropped: int
    facade_lost: int
    facade_reason: str | None


async def lately(session: AsyncSession, served: int | None, *, recent: float, old: float) -> Lately:
    """
    Args:
        served: the policy version that the Explorer serves.
        recent, old: Unix seconds.
    """
    version = None if served is None else await session.get(VersionRow, served)
    since = 0.0 if version is None else version.seen_at
    delivered = select(func.sum(CommitRow.experiences)).where(CommitRow.state == "delivered")
    last = select(func.max(CommitRow.ended_at)).where(CommitRow.state == "delivered")
    lost = select(func.count()).where(CommitRow.state.in_(("lost", "failed")), CommitRow.ended_at > recent)
    dropped = select(func.count()).where(
        GroupRow.state == "dropped", GroupRow.commit_id.is_not(None), GroupRow.updated_at > recent
    )
    facade = select(FacadeGroupRow.reason).where(
        FacadeGroupRow.state.in_(("lost", "dropped")), FacadeGroupRow.updated_at > recent
    )
    reasons = (await session.scalars(facade.order_by(FacadeGroupRow.updated_at.desc()))).all()
    return Lately(
        last_delivery=await session.scalar(last),
        untrained=await session.scalar(delivered.where(CommitRow.ended_at > since, CommitRow.ended_at < old)) or 0,
        commits_lost=await session.scalar(lost) or 0,
        groups_dropped=await session.scalar(dropped) or 0,
        facade_lost=len(reasons),
        facade_reason=reasons[0] if reasons else None,
    )
