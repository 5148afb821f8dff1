"""Judged pairs as data for preference training: lines of JSON in TRL's conversational form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from slipstream.jsontext import from_json, to_json
from slipstream.memory.parsing import PATIENCE, Share, memory_of
from slipstream.preferences.shown import conversational
from slipstream.stages.context import Context
from slipstream.store import preference_candidates, preference_verdicts
from slipstream.store.preference_verdicts import Verdict
from slipstream.tenants import name_of

_AT_ONCE = 100
"""Pairs that one query looks for."""

_COPIES = 2
"""Copies of a pair in memory: read, and written."""


async def lines(context: Context, tenant: str | None) -> AsyncIterator[bytes]:
    """A line for each pair of which one answer was preferred by more annotators, as long as its texts are stored.

    Args:
        tenant: None for pairs of all tenants.
    """
    after: tuple[float, str] | None = (0.0, "")
    while after is not None:
        async with context.database.read() as session:
            found, after = await preference_verdicts.verdicts(session, tenant, _AT_ONCE, after)
        for verdict in found:
            if (line := await _line(context, verdict)) is not None:
                yield line


async def _line(context: Context, verdict: Verdict) -> bytes | None:
    async with context.database.read() as session:
        texts = await preference_candidates.texts(session, verdict.call_id, verdict.left_run, verdict.right_run)
    if texts is None:
        return None
    said = [await asyncio.to_thread(body.text) for body in (texts.request, texts.left, texts.right)]
    async with context.parsing.held(memory_of(*said, copies=_COPIES), Share.CONTROL, patience=PATIENCE):
        return await asyncio.to_thread(_written, verdict, *said)


def _written(verdict: Verdict, request: bytes, left: bytes, right: bytes) -> bytes:
    asked = from_json(request)[0]
    answers = [(from_json(left)[0], verdict.left_variant), (from_json(right)[0], verdict.right_variant)]
    (chosen, winner), (rejected, loser) = answers if verdict.left_chosen else reversed(answers)
    line: dict[str, Any] = {
        "prompt": asked.get("messages", []),
        "chosen": [conversational(chosen)],
        "rejected": [conversational(rejected)],
    }
    if asked.get("tools"):
        line["tools"] = asked["tools"]
    line |= {
        "pair_id": verdict.pair_id,
        "task_id": name_of(verdict.task_ref),
        "session_id": name_of(verdict.session_ref),
        "chosen_by": winner,
        "rejected_by": loser,
        "votes": _votes(verdict),
        "reasons": verdict.reasons,
        "judged_at": verdict.updated_at,
    }
    return to_json(line) + b"\n"


def _votes(verdict: Verdict) -> dict[str, int]:
    left, right, tie, both_bad = verdict.votes.values()
    chosen, rejected = (left, right) if verdict.left_chosen else (right, left)
    return {"chosen": chosen, "rejected": rejected, "tie": tie, "both_bad": both_bad}
