"""`/preferences`: pairs of answers for people to compare, and what they chose."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from slipstream.access.scope import Scope
from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.holding import HoldDep
from slipstream.api.scope import ScopeDep, author
from slipstream.errors import RequestError
from slipstream.http.body import Body
from slipstream.jsontext import from_json
from slipstream.memory.parsing import memory_of
from slipstream.preferences.export import lines
from slipstream.preferences.figures import figures
from slipstream.preferences.offering import next_offer, rules
from slipstream.preferences.shown import blind
from slipstream.store import audit, preference_candidates, preference_figures, preferences
from slipstream.store.audit import Action, Write
from slipstream.store.preferences import Choice, Judged, NewJudgement, Offer, PairKind, Result

router = APIRouter(tags=["preferences"], route_class=BodyRoute)

_COPIES = 3
"""Copies of a pair in memory: read, made blind, and copied before it is written as JSON."""

_Annotator = Annotated[str, Field(pattern=r"^[A-Za-z0-9._@-]{1,64}$")]


class NextQuery(BaseModel):
    """The annotator who asks, and the pairs that she compares."""

    model_config = ConfigDict(extra="forbid")

    annotator: _Annotator | None = None
    kind: PairKind | None = None
    after: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00]*$")] | None = None


class PreferenceBody(Body):
    """A judgement of a pair that was shown."""

    pair_id: Annotated[str, Field(min_length=1, max_length=64)]
    choice: Literal["a", "b", "tie", "both_bad", "skip"]
    annotator: _Annotator | None = None
    reason: Annotated[str, Field(max_length=10_000)] | None = None


@router.get("/preferences/next")
async def get_next(
    query: Annotated[NextQuery, Query()], sidecar: SidecarDep, scope: ScopeDep, hold: HoldDep
) -> dict[str, Any]:
    """A pair of answers that this annotator has not judged, kept for her for a while; null if there is none."""
    annotator = _named(query.annotator, scope)
    while True:
        offer = await next_offer(sidecar.context, annotator, scope.tenant, query.kind, query.after)
        if offer is None:
            return {"pair": None}
        shown = await _shown(sidecar, offer, hold)
        if shown is not None:
            return {"pair": shown}


@router.get("/preferences")
async def get_preferences(sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Figures of all judgements: counts, the influence of the order, agreement, and a ranking of who answered."""
    async with sidecar.database.read() as session:
        pairs = await preference_figures.counts(session, scope.tenant)
        judgements = await preference_figures.judgements(session, scope.tenant)
    return {"pairs": pairs._asdict(), **await asyncio.to_thread(figures, judgements)}


@router.post("/preferences")
async def post_preference(body: PreferenceBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Store a judgement. The same one again changes nothing."""
    now = time.time()
    new = NewJudgement(
        pair_id=body.pair_id,
        annotator=_named(body.annotator, scope),
        choice=Choice(body.choice),
        tenant=scope.tenant,
        reason=None if body.reason is None else sidecar.redactor.redact(body.reason),
        key=scope.key,
    )
    async with sidecar.database.write() as session:
        done = await preferences.judge(session, new, rules(sidecar.context), now)
        if done.result is Result.STORED:
            refs = [] if done.task_ref is None else [done.task_ref]
            await audit.note(session, Write(Action.PREFERENCE, new.pair_id, "task_id", refs), author(scope), now)
    _refuse(done, new)
    if done.result is Result.STORED:
        sidecar.metrics.preferences.labels(new.choice).inc()
    return {"pair_id": new.pair_id, "annotator": new.annotator, "choice": new.choice}


@router.get("/preferences/export", response_class=StreamingResponse)
async def get_export(sidecar: SidecarDep, scope: ScopeDep) -> StreamingResponse:
    """Judged pairs for preference training, a line of JSON each: the prompt, the chosen and the rejected answer."""
    return StreamingResponse(lines(sidecar.context, scope.tenant), media_type="application/x-ndjson")


def _named(annotator: str | None, scope: Scope) -> str:
    """The annotator; the name of her key where she gives none.

    Raises:
        RequestError: neither is there.
    """
    name = annotator or scope.key
    if name is None:
        text = "annotator: expected who judges, because no key of hers says it; found none"
        raise RequestError(text, param="annotator", status=422, code="invalid_request")
    return name


def _refuse(done: Judged, new: NewJudgement) -> None:
    """
    Raises:
        RequestError: the judgement was not stored.
    """
    pair, again = f"pair_id: {new.pair_id!r}", "ask GET /preferences/next for another pair"
    match done.result:
        case Result.UNKNOWN:
            text = f"{pair} is no pair, or its session was deleted; {again}"
            raise RequestError(text, param="pair_id", status=404, code="not_found")
        case Result.NOT_OFFERED:
            text = f"{pair} was not shown to {new.annotator}; {again}"
            raise RequestError(text, param="pair_id", status=409, code="pair_not_offered")
        case Result.EXPIRED:
            text = f"{pair} was kept for {new.annotator} no longer, and went to another annotator; {again}"
            raise RequestError(text, param="pair_id", status=409, code="pair_expired")
        case Result.CONTRADICTED:
            text = f"choice: {new.annotator} has judged this pair already: expected {done.choice} again, found "
            raise RequestError(text + new.choice, param="choice", status=409, code="pair_judged")


async def _shown(sidecar: SidecarDep, offer: Offer, hold: HoldDep) -> dict[str, Any] | None:
    """A pair as it is shown; None if its answers were deleted meanwhile."""
    async with sidecar.database.read() as session:
        texts = await preference_candidates.texts(session, offer.call_id, offer.left_run, offer.right_run)
    if texts is None:
        return None
    said = [await asyncio.to_thread(body.text) for body in (texts.request, texts.left, texts.right)]
    await hold(memory_of(*said, copies=_COPIES))
    request, left, right = [(await asyncio.to_thread(from_json, text))[0] for text in said]
    first, second = (right, left) if offer.swapped else (left, right)
    return {
        "pair_id": offer.pair_id,
        "expires_at": offer.expires_at,
        "messages": request.get("messages", []),
        "tools": request.get("tools"),
        "a": blind(first),
        "b": blind(second),
    }
