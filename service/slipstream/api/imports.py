"""`POST /imports`: conversations of other programs come into the store as if they had been captured."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter
from pydantic import Field, JsonValue, model_validator

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep, author
from slipstream.capture.imported import CannotImport, GivenCall, GivenTask, Origin
from slipstream.errors import RequestError
from slipstream.http.body import Body, Name
from slipstream.sidecar import Sidecar
from slipstream.store import audit, imports
from slipstream.store.audit import Action, Write
from slipstream.store.feedback import NewFeedback
from slipstream.store.imports import NewConversation, Stored
from slipstream.store.recording import NewCall
from slipstream.tenants import DEFAULT

router = APIRouter(tags=["data sets"], route_class=BodyRoute)

_MOST_CALLS = 1000
"""Calls of one request: they are stored in one transaction, and feedback waits for its end."""

_LABEL = "imported"
"""Label of each imported task; another one says from where."""

Id = Annotated[str, Field(max_length=256)]
Label = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^,\x00-\x20]([^,\x00-\x1f]*[^,\x00-\x20])?$")]


class Judgement(Body):
    """Feedback on an answer: a thumb, or a score of 0 to 1 that spans the range of rewards."""

    score: Annotated[float, Field(ge=0, le=1)] | None = None
    thumbs: Literal["up", "down"] | None = None
    name: Annotated[str, Field(max_length=128)] = ""
    comment: Annotated[str, Field(max_length=10_000)] | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        self.has_one_of("score", "thumbs")
        return self


class CallBody(Body):
    """A call: the request of a chat completion, and the assistant's message.

    With `goes_on`, the messages of `request` are those behind the messages and the answer of the call before.
    """

    id: Id = ""
    request: dict[str, JsonValue]
    answer: dict[str, JsonValue]
    goes_on: bool = False
    finish_reason: Annotated[str, Field(max_length=64)] | None = None
    usage: dict[str, JsonValue] | None = None
    latency: Annotated[float, Field(ge=0)] = 0.0
    feedback: Judgement | None = None


class TaskBody(Body):
    """One request of a user: the calls that it took, in order."""

    id: Id = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    calls: Annotated[list[CallBody], Field(min_length=1, max_length=_MOST_CALLS)]


class ConversationBody(Body):
    """A session, stored whole or not at all.

    `id` is its id where it comes from; without one, what was said names it. `at` is when its last call began, Unix
    seconds: a session that was deleted since then stays deleted.
    """

    id: Id = ""
    session_id: Name | None = None
    at: Annotated[float, Field(ge=0)] | None = None
    tasks: Annotated[list[TaskBody], Field(min_length=1, max_length=_MOST_CALLS)]


class ImportBody(Body):
    """Body of `POST /imports`. `source` says where they come from, such as `langfuse`."""

    source: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
    labels: Annotated[list[Label], Field(max_length=100)] = Field(default_factory=list)
    select: bool = False
    conversations: Annotated[list[ConversationBody], Field(min_length=1, max_length=_MOST_CALLS)]

    @model_validator(mode="after")
    def _is_not_too_long(self) -> Self:
        calls = sum(len(task.calls) for each in self.conversations for task in each.tasks)
        if calls > _MOST_CALLS:
            raise ValueError(f"conversations with at most {_MOST_CALLS} calls together, found {calls}")
        return self


@router.post("/imports")
async def post_imports(body: ImportBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Store conversations, each whole or not at all, and none twice. Says for each, in order, what became of it:
    `imported`, `known` (all of it was there), `erased` (it was deleted before), or `refused`. Once this answers, what
    is imported is not lost."""
    if sidecar.capture.store_full:
        text = "the store is full (limits.store_bytes): nothing new is taken in until retention has made room"
        raise RequestError(text, status=503, code="store_full")
    now = time.time()
    tenant = scope.tenant or DEFAULT
    read = await asyncio.to_thread(_read, sidecar, body, tenant, now)
    new = [each for each in read if isinstance(each, NewConversation)]
    async with sidecar.database.write() as session:
        done = await imports.add(session, new, now, select_=body.select)
        stored = [one for one, is_stored in zip(new, done.stored, strict=True) if is_stored.calls or is_stored.feedback]
        if stored:
            names = [one.calls[0].session_id for one in stored]
            await audit.note(session, Write(Action.IMPORT, None, "session_id", names), author(scope), now)
    sidecar.metrics.captured.inc(sum(one.calls for one in done.stored))
    sidecar.metrics.feedback.inc(sum(one.feedback for one in done.stored))
    if done.undecided:
        sidecar.decide()
    if done.rescore:
        sidecar.rescore()
    results = iter(done.stored)
    return {"results": [each if isinstance(each, dict) else _result(next(results)) for each in read]}


def _result(one: Stored) -> dict[str, Any]:
    state = "erased" if one.erased else "imported" if one.calls or one.feedback else "known"
    return {"state": state, "calls": one.calls, "feedback": one.feedback, "field": None, "reason": None}


def _read(sidecar: Sidecar, body: ImportBody, tenant: str, now: float) -> list[NewConversation | dict[str, Any]]:
    """Return each conversation as it is to be stored, or the result of one that is refused."""
    labels = list(dict.fromkeys([_LABEL, f"{_LABEL}:{body.source}", *body.labels]))
    read: list[NewConversation | dict[str, Any]] = []
    for one in body.conversations:
        origin = Origin(tenant, body.source, one.id, one.session_id, labels)
        try:
            tasks = sidecar.capture.importer.read(origin, _given(one), now)
        except CannotImport as error:
            field = f"tasks[{error.task}].calls[{error.call}]"
            reason = f"it cannot be captured: {error.reason}"
            read.append({"state": "refused", "calls": 0, "feedback": 0, "field": field, "reason": reason})
            continue
        said = [
            _feedback(sidecar, call.feedback, stored, body.source)
            for task, calls in zip(one.tasks, tasks, strict=True)
            for call, stored in zip(task.calls, calls, strict=True)
            if call.feedback is not None
        ]
        read.append(NewConversation([call for calls in tasks for call in calls], said, one.at))
    return read


def _given(one: ConversationBody) -> Sequence[GivenTask]:
    said: list[Any] = []
    tasks = []
    for task in one.tasks:
        calls = []
        for call in task.calls:
            listed = call.request.get("messages")
            messages = [*said, *listed] if call.goes_on and isinstance(listed, list) else listed
            said = [*messages, call.answer] if isinstance(messages, list) else []
            request = {**call.request, "messages": messages}
            calls.append(GivenCall(call.id, request, call.answer, call.finish_reason, call.usage, call.latency))
        tasks.append(GivenTask(task.id, calls, task.metadata))
    return tasks


def _feedback(sidecar: Sidecar, said: Judgement, call: NewCall, source: str) -> NewFeedback:
    low, high = sidecar.settings.rewards.clip
    part = said.score if said.score is not None else float(said.thumbs == "up")
    assert call.msg_id is not None, "an imported answer has one"
    name = hashlib.sha256("\0".join((call.msg_id, said.name, repr(part))).encode()).hexdigest()[:32]
    redact = sidecar.redactor.redact
    return NewFeedback(
        id=name,
        kind="msg_id",
        refs=(call.msg_id,),
        reward=low + (high - low) * part,
        thumbs=said.thumbs,
        comment=None if said.comment is None else redact(said.comment),
        source=redact(f"{source}: {said.name}" if said.name else source),
    )
