"""`POST /feedback`: a reward, a rating or a thumb for an answer. `GET /feedback/{id}`: what became of it."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import Field, model_validator
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import ScopeDep, author, reference
from slipstream.errors import RequestError
from slipstream.http.body import Body, MsgId, Name, in_range
from slipstream.sidecar import Sidecar
from slipstream.store import audit, feedback, feedback_views
from slipstream.store.audit import Action, Write
from slipstream.store.feedback import Kind, NewFeedback
from slipstream.store.feedback_keys import HOUR, named_since

router = APIRouter(tags=["feedback"], route_class=BodyRoute)

_MOST_MSG_IDS = 1000
"""More answers than any run has; a longer list is a mistake."""


class FeedbackBody(Body):
    """Body of `POST /feedback`: a reward or a comment for answers.

    Trinity's form names `msg_ids` (with the `task_id` and `run_id` that Trinity groups by, which the sidecar knows
    itself). The friendlier form names one of `msg_id`, `task_id`, `session_id`; a task or a session stands for the
    last answer in it. Said is one of `reward`, `rating`, `thumbs`.
    """

    msg_ids: Annotated[list[MsgId], Field(min_length=1, max_length=_MOST_MSG_IDS)] | None = None
    run_id: int | None = None
    msg_id: MsgId | None = None
    task_id: Name | None = None
    session_id: Name | None = None
    reward: float | None = None
    rating: Annotated[int, Field(ge=1, le=5)] | None = None
    thumbs: Literal["up", "down"] | None = None
    comment: Annotated[str, Field(max_length=10_000)] | None = None
    source: Annotated[str, Field(max_length=256)] | None = None

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if self.msg_ids is not None:  # Trinity's form, in which a task may stand beside it
            self.has_one_of("msg_ids", "msg_id", "session_id")
        else:
            self.has_one_of("msg_ids", "msg_id", "task_id", "session_id")
            if self.run_id is not None:
                raise ValueError("msg_ids beside run_id, found none")
        self.has_one_of("reward", "rating", "thumbs")
        return self

    def names(self) -> tuple[Kind, tuple[str, ...]]:
        """Return the kind and the names of the things that the feedback is about."""
        if self.msg_ids is not None:
            return "msg_id", tuple(self.msg_ids)
        if self.msg_id is not None:
            return "msg_id", (self.msg_id,)
        if self.task_id is not None:
            return "task_id", (self.task_id,)
        assert self.session_id is not None
        return "session_id", (self.session_id,)

    def as_reward(self, low: float, high: float) -> float:
        """The reward it stands for: a rating of 1 to 5 spans the range, a thumb is one of its ends.

        Raises:
            RequestError: the reward is out of the range.
        """
        if self.rating is not None:
            return low + (high - low) * (self.rating - 1) / 4
        if self.thumbs is not None:
            return high if self.thumbs == "up" else low
        assert self.reward is not None
        return in_range(self.reward, low, high)


@router.post("/feedback", status_code=202)
async def post_feedback(body: FeedbackBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, str]:
    """Store a feedback. Once this answers 202, it is not lost; `id` is its receipt."""
    kind, names = body.names()
    if kind != "msg_id":
        names = tuple(stored_id(sidecar, name) for name in names)
    clip, bounds = sidecar.settings.rewards.clip, sidecar.settings.feedback.of(scope.key)
    reward = body.as_reward(*clip)
    new = NewFeedback(
        id=uuid.uuid4().hex,
        kind=kind,
        refs=(),
        reward=reward,
        key=scope.key,
        counts_as=None if bounds.weight == 1 else bounds.weighted(reward, *clip),
        ignored=bounds.weight == 0,
        rating=body.rating,
        thumbs=body.thumbs,
        comment=None if body.comment is None else sidecar.redactor.redact(body.comment),
        source=None if body.source is None else sidecar.redactor.redact(body.source),
    )
    now = time.time()
    async with sidecar.database.write() as session:
        refs = [await reference(session, scope, kind, name) for name in dict.fromkeys(names)]
        await _within_rate(sidecar, session, scope.key, len(refs), now)
        rescore = await feedback.add(session, replace(new, refs=tuple(refs)), now)
        await audit.note(session, Write(Action.FEEDBACK, new.id, kind, refs), author(scope), now)
    sidecar.metrics.feedback.inc()
    if rescore:
        sidecar.rescore()
    return {"id": new.id}


async def _within_rate(sidecar: Sidecar, session: AsyncSession, key: str | None, more: int, now: float) -> None:
    """
    Raises:
        RequestError: 429, the key has given as much feedback within the hour as it may. Nothing is stored.
    """
    rate = sidecar.settings.feedback.of(key).rate
    if key is None or rate is None:
        return
    used, first = await named_since(session, key, now - HOUR)
    if used + more <= rate:
        return
    sidecar.metrics.feedback_refused.inc()
    text = f"this key ({key}) may give feedback on {rate} answers in any hour (feedback.per_key.rate); "
    text += f"it has on {used}, and this is on {more} more"
    if first is not None:
        text += f". The oldest of them counts for {first + HOUR - now:.0f} s more"
    raise RequestError(text, status=429, code="feedback_rate")


@router.get("/feedback/{feedback_id}")
async def get_feedback(feedback_id: str, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Answer with the state of a feedback: for each answer that it names, matched, waiting, superseded, late, unknown
    or ignored."""
    async with sidecar.database.read() as session:
        found = await feedback_views.receipt(session, feedback_id, scope.tenant)
    if found is None:
        raise RequestError(f"no feedback has the id {feedback_id!r}", param="feedback_id", status=404, code="not_found")
    return found
