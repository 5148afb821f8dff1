"""Judgements and pairs, read for the figures."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.preferences import Choice
from slipstream.store.tables.preferences import PreferenceOfferRow, PreferencePairRow


class Judgement(NamedTuple):
    """One judgement.

    Attributes:
        session_ref: whose answers they are.
        left, right: names of who answered.
        swapped: the right answer was shown first.
    """

    pair_id: str
    session_ref: str
    annotator: str
    left: str
    right: str
    swapped: bool
    choice: Choice


class PairCounts(NamedTuple):
    """Pairs: all that were compared, and of these the judged ones and those with two equal answers."""

    made: int
    judged: int
    identical: int


async def judgements(session: AsyncSession, tenant: str | None) -> list[Judgement]:
    """All judgements, in their order; of one tenant, or of all for None."""
    query = (
        select(
            PreferencePairRow.id,
            PreferencePairRow.session_ref,
            PreferenceOfferRow.annotator,
            PreferencePairRow.left_variant,
            PreferencePairRow.right_variant,
            PreferenceOfferRow.swapped,
            PreferenceOfferRow.choice,
        )
        .join(PreferencePairRow, PreferencePairRow.id == PreferenceOfferRow.pair_id)
        .where(PreferenceOfferRow.choice.is_not(None))
    )
    if tenant is not None:
        query = query.where(PreferencePairRow.tenant == tenant)
    rows = await session.execute(query.order_by(PreferenceOfferRow.id))
    return [
        Judgement(pair_id, session_ref, annotator, left, right, swapped, Choice(choice))
        for pair_id, session_ref, annotator, left, right, swapped, choice in rows
        if choice is not None
    ]


async def counts(session: AsyncSession, tenant: str | None) -> PairCounts:
    """Count the pairs of one tenant, or of all for None."""
    judged = func.count().filter(PreferencePairRow.judged > 0)
    query = select(func.count(), judged, func.count().filter(PreferencePairRow.identical))
    if tenant is not None:
        query = query.where(PreferencePairRow.tenant == tenant)
    return PairCounts(*(await session.execute(query.select_from(PreferencePairRow))).one())
