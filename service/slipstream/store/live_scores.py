"""Scores of answers that users got, of production and of the version alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.rollouts import LiveScoreRow


class LiveScore(NamedTuple):
    """The score of one answer.

    Attributes:
        value: within `rewards.clip`; None where the task gives no basis for one.
        breakdown: the components, as of a reward.
    """

    value: float | None
    breakdown: Mapping[str, Any]


async def save(session: AsyncSession, scores: Mapping[int, LiveScore], now: float) -> None:
    """Store scores by the call, but for calls that were deleted or scored meanwhile."""
    there = set(await session.scalars(select(CallRow.id).where(CallRow.id.in_(scores))))
    scored = set(await session.scalars(select(LiveScoreRow.call_id).where(LiveScoreRow.call_id.in_(scores))))
    for call, score in scores.items():
        if call in there - scored:
            session.add(LiveScoreRow(call_id=call, value=score.value, breakdown=dict(score.breakdown), scored_at=now))


async def of_calls(session: AsyncSession, calls: Collection[int]) -> dict[int, LiveScore]:
    """The scores that these calls have."""
    if not calls:
        return {}
    query = select(LiveScoreRow.call_id, LiveScoreRow.value, LiveScoreRow.breakdown)
    rows = await session.execute(query.where(LiveScoreRow.call_id.in_(calls)))
    return {call: LiveScore(value, breakdown) for call, value, breakdown in rows}
