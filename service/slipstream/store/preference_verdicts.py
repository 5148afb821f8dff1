"""Pairs of which one answer was preferred, read for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store.preferences import Choice, Side, readable, side
from slipstream.store.tables.preferences import PreferenceOfferRow, PreferencePairRow


@dataclass(frozen=True, slots=True)
class Verdict:
    """A pair of which more annotators preferred one answer than the other.

    Attributes:
        left_run: None for production's answer.
        left_chosen: the left answer is the preferred one.
        votes: judgements by what they preferred.
        reasons: of the annotators who gave one.
    """

    pair_id: str
    task_ref: str
    session_ref: str
    call_id: int
    left_run: int | None
    right_run: int
    left_variant: str
    right_variant: str
    left_chosen: bool
    votes: Mapping[Side, int]
    reasons: tuple[str, ...]
    updated_at: float


async def verdicts(
    session: AsyncSession, tenant: str | None, limit: int, after: tuple[float, str] = (0.0, "")
) -> tuple[list[Verdict], tuple[float, str] | None]:
    """The verdicts among some judged pairs whose answers are still there, in the order of their last judgements.

    Args:
        limit: pairs that are looked at.
        after: where the pairs before ended.

    Returns:
        Also where these end; None if there are no more.
    """
    place = tuple_(PreferencePairRow.updated_at, PreferencePairRow.id)
    query = select(PreferencePairRow).where(readable(), PreferencePairRow.judged > 0, place > tuple_(*after))
    if tenant is not None:
        query = query.where(PreferencePairRow.tenant == tenant)
    pairs = (
        await session.scalars(query.order_by(PreferencePairRow.updated_at, PreferencePairRow.id).limit(limit))
    ).all()
    offers: dict[str, list[PreferenceOfferRow]] = {}
    judged = select(PreferenceOfferRow).where(PreferenceOfferRow.pair_id.in_([pair.id for pair in pairs]))
    for offer in await session.scalars(
        judged.where(PreferenceOfferRow.choice.is_not(None)).order_by(PreferenceOfferRow.id)
    ):
        offers.setdefault(offer.pair_id, []).append(offer)
    found = [_verdict(pair, offers.get(pair.id, [])) for pair in pairs]
    end = (pairs[-1].updated_at, pairs[-1].id) if len(pairs) == limit else None
    return [each for each in found if each is not None], end


def _verdict(pair: PreferencePairRow, offers: Sequence[PreferenceOfferRow]) -> Verdict | None:
    chosen = [(offer, Choice(offer.choice)) for offer in offers if offer.choice is not None]
    sides = [side(choice, swapped=offer.swapped) for offer, choice in chosen]
    votes = {each: sides.count(each) for each in Side}
    if votes[Side.LEFT] == votes[Side.RIGHT]:
        return None
    assert pair.call_id is not None, "of a readable pair"
    assert pair.right_run is not None, "of a readable pair"
    return Verdict(
        pair_id=pair.id,
        task_ref=pair.task_ref,
        session_ref=pair.session_ref,
        call_id=pair.call_id,
        left_run=pair.left_run,
        right_run=pair.right_run,
        left_variant=pair.left_variant,
        right_variant=pair.right_variant,
        left_chosen=votes[Side.LEFT] > votes[Side.RIGHT],
        votes=votes,
        reasons=tuple(offer.reason for offer in offers if offer.reason is not None),
        updated_at=pair.updated_at,
    )
