"""`POST /feedback`: a reward, a rating or a thumb for an answer. `GET /feedback/{id}`: what became of it."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import ScopeDep, author, reference
from slipstream.errors import RequestError
from slipstream.http.body import Body, MsgId, Name, in_range
from slipstream.store import audit, feedback, feedback_views
from slipstream.store.audit import Action, Write
from slipstream.store.feedback import Kind, NewFeedback

router = APIRouter(tags=["feedback"])

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
    new = NewFeedback(
        id=uuid.uuid4().hex,
        kind=kind,
        refs=(),
        reward=body.as_reward(*sidecar.settings.rewards.clip),
        rating=body.rating,
        thumbs=body.thumbs,
        comment=None if body.comment is None else sidecar.redactor.redact(body.comment),
        source=None if body.source is None else sidecar.redactor.redact(body.source),
    )
    now = time.time()
    async with sidecar.database.write() as session:
        refs = [await reference(session, scope, kind, name) for name in dict.fromkeys(names)]
        rescore = await feedback.add(session, replace(new, refs=tuple(refs)), now)
        await audit.note(session, Write(Action.FEEDBACK, new.id, kind, refs), author(scope), now)
    sidecar.metrics.feedback.inc()
    if rescore:
        sidecar.rescore()
    return {"id": new.id}


@router.get("/feedback/{feedback_id}")
async def get_feedback(feedback_id: str, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Answer with the state of a feedback: for each answer that it names, matched, waiting, superseded, late or
    unknown."""
    async with sidecar.database.read() as session:
        found = await feedback_views.receipt(session, feedback_id, scope.tenant)
    if found is None:
        raise RequestError(f"no feedback has the id {feedback_id!r}", param="feedback_id", status=404, code="not_found")
    return found
