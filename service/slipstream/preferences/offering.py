"""The next pair of an annotator: one that waits for her, or a new one of the newest answers."""

from __future__ import annotations

import asyncio
import random
import uuid

from slipstream.jsontext import from_json
from slipstream.memory.parsing import PATIENCE, Share, memory_of
from slipstream.preferences.shown import say_the_same
from slipstream.stages.context import Context
from slipstream.store import preference_candidates, preferences
from slipstream.store.preference_candidates import Candidate
from slipstream.store.preferences import NewPair, Offer, PairKind, Rules

_AT_ONCE = 20
"""Groups that are looked at after one query."""

_drawn = random.SystemRandom()
"""Orders and runs are drawn so that no annotator can foresee them."""


def rules(context: Context) -> Rules:
    """The rules of the settings."""
    settings = context.settings.preferences
    return Rules(settings.judgements, settings.lease)


async def next_offer(
    context: Context, annotator: str, tenant: str | None, kind: PairKind | None, after: str | None = None
) -> Offer | None:
    """Lease a pair to an annotator; None where there is none that she has not judged.

    Args:
        tenant: whose answers she may see; None for those of all.
        kind: None for pairs with production as long as there are any, then for pairs of runs.
        after: a pair that she has chosen in, and will judge.
    """
    kinds = tuple(PairKind) if kind is None else (kind,)
    while True:
        async with context.database.write() as session:
            now = context.clock()
            offer = await preferences.lease(session, annotator, tenant, kinds, rules(context), _coin(), now, after)
        if offer is not None:
            return offer
        for wanted in kinds:
            if await _add_pair(context, tenant, wanted):
                break
        else:
            return None


async def _add_pair(context: Context, tenant: str | None, kind: PairKind) -> bool:
    """Make pairs of the newest groups until one has two different answers; returns False where there is no group."""
    async with context.database.read() as session:
        found = await preference_candidates.candidates(session, kind, tenant, _AT_ONCE)
    made = []
    for candidate in found:
        pair = await _pair(context, candidate, kind)
        made += [pair] if pair is not None else []
        if pair is not None and not pair.identical:
            break
    async with context.database.write() as session:
        for pair in made:
            await preferences.add(session, pair, context.clock())
    return bool(found)


async def _pair(context: Context, candidate: Candidate, kind: PairKind) -> NewPair | None:
    """A pair of a group's answers, drawn at random: to look for two that differ would say more of rare differences than
    there is. None where they were deleted meanwhile."""
    left_run, left = None, candidate.variant
    [right_run, right], *others = _drawn.sample(candidate.runs, len(candidate.runs))
    if kind is PairKind.RUNS:
        left_run, left = others[0]
    async with context.database.read() as session:
        texts = await preference_candidates.texts(session, candidate.call_id, left_run, right_run)
    if texts is None:
        return None
    said = [await asyncio.to_thread(answer.text) for answer in (texts.left, texts.right)]
    async with context.parsing.held(memory_of(*said), Share.CONTROL, patience=PATIENCE):
        same = await asyncio.to_thread(lambda: say_the_same(*(from_json(text)[0] for text in said)))
    return NewPair(
        id=uuid.uuid4().hex,
        kind=kind,
        tenant=candidate.tenant,
        task_ref=candidate.task_ref,
        session_ref=candidate.session_ref,
        group_id=candidate.group_id,
        call_id=candidate.call_id,
        left_run=left_run,
        right_run=right_run,
        left_variant=left,
        right_variant=right,
        identical=same,
    )


def _coin() -> bool:
    return _drawn.random() < 0.5
