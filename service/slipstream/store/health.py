"""Queries of the recent past for the sidecar's view of itself: failures, work that waits too long, and work without
results. They run with each scrape, so each reads a few rows by an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import commits, quarantine, ready_groups, version_weights
from slipstream.store.outcomes import Outcomes, outcomes
from slipstream.store.overview import decisions
from slipstream.store.states import (
    FAILED_FACADE_GROUPS,
    LOST_COMMITS,
    CommitState,
    GroupState,
    RunState,
)
from slipstream.store.tables.commits import CommitRow
from slipstream.store.tables.facade import FacadeGroupRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tables.versions import VersionRow


@dataclass(frozen=True, slots=True)
class Served:
    """The policy version that is served: since when, the last commit that it can have been trained on, what was
    delivered since it appeared, and the newest version that was served before a rollback to an older one."""

    version: int
    seen_at: float
    last_commit: int | None
    experiences_since: int
    rolled_back_from: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """
    Attributes:
        served: None where no version is known.
        delivered: experiences, in all.
        last_delivery: Unix seconds; None before the first.
        untrained: experiences that were delivered before `old`, and since the served version appeared.
        commits_lost: commits since `recent` whose groups the Explorer lost.
        groups_dropped: groups since `recent` that a delivery gave up.
        facade_lost: groups of the facade since `recent` that were lost or dropped.
        facade_reason: why, for the newest of them.
        runs_pending: runs that wait to be sent.
        quarantined: exchanges, tasks and runs that are set apart, by kind.
        passed_over: the newest tasks by the reason why they were not selected; empty where any is run.
        outcomes: what the newest groups since `recent` came to.
        ready: experiences that wait for a commit.
        weights_like: the version made before the served one that has the same weights; None if there is none, or the
            weights were not read.
        ready_since: Unix seconds; since when the oldest group of the sidecar's own waits for one, None without any.
    """

    served: Served | None
    delivered: int
    last_delivery: float | None
    untrained: int
    commits_lost: int
    groups_dropped: int
    facade_lost: int
    facade_reason: str | None
    runs_pending: int
    quarantined: Mapping[str, int]
    passed_over: Mapping[str, int]
    outcomes: Outcomes
    ready: int
    ready_since: float | None
    weights_like: int | None = None


async def health(
    session: AsyncSession, served: int | None, *, recent: float, old: float, tenant: str | None = None
) -> Health:
    """
    Args:
        served: the policy version that the Explorer serves.
        recent, old: Unix seconds.
        tenant: whose runs' reasons are told; None tells all.
    """
    version = None if served is None else await session.get(VersionRow, served)
    delivered = await commits.delivered_experiences(session)
    before = 0 if version is None else version.experiences
    ended = select(func.max(CommitRow.ended_at)).where(CommitRow.state == CommitState.DELIVERED)
    lost = select(func.count()).where(CommitRow.state.in_(LOST_COMMITS), CommitRow.ended_at > recent)
    dropped = select(func.count()).where(
        GroupRow.state.in_((GroupState.DROPPED, GroupState.LOST)),
        GroupRow.commit_id.is_not(None),
        GroupRow.updated_at > recent,
    )
    facade = (
        FacadeGroupRow.state.in_(FAILED_FACADE_GROUPS),
        FacadeGroupRow.updated_at > recent,
    )
    newest = select(FacadeGroupRow.reason).where(*facade).order_by(FacadeGroupRow.updated_at.desc()).limit(1)
    pending = select(func.count()).where(RunRow.state == RunState.PENDING)
    return Health(
        served=None
        if version is None or version.seen_at is None
        else Served(
            version.version,
            version.seen_at,
            version.last_commit_id,
            delivered - before,
            await _rolled_back_from(session, version.version),
        ),
        delivered=delivered,
        last_delivery=await session.scalar(ended),
        untrained=max(0, await commits.delivered_experiences(session, old) - before),
        commits_lost=await session.scalar(lost) or 0,
        groups_dropped=await session.scalar(dropped) or 0,
        facade_lost=await session.scalar(select(func.count()).where(*facade)) or 0,
        facade_reason=await session.scalar(newest),
        runs_pending=await session.scalar(pending) or 0,
        quarantined=await quarantine.count(session),
        passed_over=await _passed_over(session),
        outcomes=await outcomes(session, recent, tenant),
        ready=await ready_groups.ready_experiences(session),
        ready_since=await ready_groups.oldest_waiting(session),
        weights_like=None if version is None else await version_weights.same_as_before(session, version),
    )


async def _rolled_back_from(session: AsyncSession, version: int) -> int | None:
    """Version 0 is no rollback: an Explorer that was just started serves it until it has read a checkpoint."""
    newest = await session.scalar(select(func.max(VersionRow.version)).where(VersionRow.seen_at.is_not(None)))
    return newest if version and newest is not None and newest > version else None


async def _passed_over(session: AsyncSession) -> Mapping[str, int]:
    if await session.scalar(select(GroupRow.id).limit(1)) is not None:
        return {}
    found = await decisions(session)
    return {} if found["selected"] else found["not_selected"]
