"""`/explorer/*`: Trinity's routes. Their bodies are read as leniently as Trinity reads them, and checked strictly.

The answers to feedback and commits have Trinity's own field, `status`, and none of ours: AgentScope Java reads them
into a class with `status` and `message`, and its Jackson throws at any other field. Counts go into a header; `message`
is there only if a part of what was asked has no effect.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, Field, ValidationError, field_validator

from slipstream.access.scope import Scope
from slipstream.api.bodies import COPIES, whole_body
from slipstream.api.commit import deliver_now
from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.passing import Passing, as_it_is, models_response
from slipstream.api.scope import ScopeDep, author
from slipstream.dialects.form import Dialect
from slipstream.http.body import Body, MsgId, Name, in_range
from slipstream.memory.parsing import PATIENCE, Share, memory_of
from slipstream.sidecar import Sidecar
from slipstream.store import audit, facade
from slipstream.store.audit import Action, Write
from slipstream.store.facade import LARGEST_RUN_ID, Reward
from slipstream.tenants import DEFAULT

router = APIRouter(prefix="/explorer", tags=["facade"])

_LONGEST_RUN_ID = 256
"""Characters of a run's name in text, which is ours to number."""

_RESULT = "x-slipstream-result"
"""The header with the counts: a dictionary of integers, as in RFC 9651."""

_PATIENCE = 30.0
_HEALTH_PATIENCE = 1.0
"""Seconds. Trinity's client waits 2 s for /health."""


class ExplorerFeedback(Body):
    """Trinity's feedback: one reward for the answers of a run. Fields that Trinity does not know are ignored there too.

    The run of a group may be named by an integer, or by text, as AgentScope does.
    """

    model_config = ConfigDict(extra="ignore")

    msg_ids: Annotated[list[MsgId], Field(min_length=1, max_length=1000)]
    reward: float
    task_id: Name | None = None
    run_id: int | str | None = None
    group_size: Annotated[int, Field(ge=1)] | None = None

    @field_validator("task_id")
    @classmethod
    def _fits_a_text_column(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("text without the character NUL, which Trinity cannot store in PostgreSQL")
        return value

    @field_validator("run_id", mode="before")
    @classmethod
    def _names_a_run(cls, value: Any) -> Any:
        text = isinstance(value, str) and 0 < len(value) <= _LONGEST_RUN_ID
        if text or value is None or (type(value) is int and 0 <= value <= LARGEST_RUN_ID):
            return value
        raise ValueError(f"an integer from 0, a text of 1 to {_LONGEST_RUN_ID} characters, or null")


@router.post("/v1/chat/completions", response_class=Response)
async def post_chat(sidecar: SidecarDep, scope: ScopeDep) -> Response:
    """A chat completion of the policy model, streamed or not."""
    return _call(Dialect.CHAT, sidecar, scope)


@router.post("/v1/responses", response_class=Response)
async def post_response(sidecar: SidecarDep, scope: ScopeDep) -> Response:
    """A call of OpenAI's Responses API, answered by the policy model: as a chat completion is."""
    return _call(Dialect.RESPONSES, sidecar, scope)


@router.post("/v1/messages", response_class=Response)
async def post_message(sidecar: SidecarDep, scope: ScopeDep) -> Response:
    """A call of Anthropic's Messages API, answered by the policy model: as a chat completion is."""
    return _call(Dialect.MESSAGES, sidecar, scope)


@router.get("/v1/models", response_class=Response)
async def get_models(sidecar: SidecarDep, request: Request) -> Response:
    """The Explorer's list of models, the policy under its stable name. In Anthropic's form for its SDK, which sends
    `anthropic-version`."""
    return await models_response(request, sidecar.policy_models(_PATIENCE))


@router.get("/metrics", response_class=Response)
async def get_metrics(sidecar: SidecarDep) -> Response:
    """The Explorer's own counters, as JSON."""
    return as_it_is(await sidecar.chats.get("/metrics", _PATIENCE))


@router.get("/health", response_class=Response)
async def get_health(sidecar: SidecarDep) -> Response:
    """200 while the Explorer answers, 503 when it is away."""
    return as_it_is(await sidecar.chats.get("/health", _HEALTH_PATIENCE))


@router.post(
    "/feedback",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": ExplorerFeedback.model_json_schema()}},
        }
    },
)
async def post_feedback(request: Request, sidecar: SidecarDep, scope: ScopeDep, response: Response) -> dict[str, str]:
    """Store a reward. Once this answers 200, it is not lost."""
    body = await _feedback(request, sidecar)
    given = Reward(
        name=f"feedback-{uuid.uuid4().hex}",
        msg_ids=tuple(body.msg_ids),
        reward=in_range(body.reward, *sidecar.settings.rewards.clip),
        task_id=None if body.task_id is None else stored_id(sidecar, body.task_id),
        run_key=None if body.run_id is None else str(body.run_id),
        group_size=body.group_size,
        tenant=scope.tenant,
    )
    now = time.time()
    async with sidecar.database.write() as session:
        receipt = await facade.add_reward(session, given, sidecar.settings.facade_group_size, now)
        about = Write(Action.FACADE_FEEDBACK, None, "msg_id", given.msg_ids)
        await audit.note(session, about, author(scope), now)
    counts = {
        "accepted": receipt.accepted,
        "repeated": receipt.repeated,
        "rejected": len(receipt.rejected),
        "unknown": len(receipt.unknown),
    }
    for result, count in counts.items():
        sidecar.metrics.facade_feedback.labels(result).inc(count)
    ids = {"rejected": receipt.rejected, "unknown": receipt.unknown}
    without_effect = ", ".join(f"{result}: {json.dumps(names)}" for result, names in ids.items() if names)
    return _success(response, counts, without_effect)


@router.post("/commit")
async def post_commit(sidecar: SidecarDep, scope: ScopeDep, response: Response) -> dict[str, str]:
    """Deliver every complete group now, the sidecar's own and the facade's, in one commit. A body is not read."""
    delivered = await deliver_now(sidecar, author(scope))
    async with sidecar.database.read() as session:
        waiting = await facade.waiting(session)
    counts = {**delivered.as_dict(), "waiting": waiting}
    lost = f"groups lost: {delivered.lost}; see facade.failed_groups of GET /status" if delivered.lost else ""
    return _success(response, counts, lost)


def _call(dialect: Dialect, sidecar: Sidecar, scope: Scope) -> Response:
    tenant = scope.tenant or DEFAULT
    return Passing(partial(sidecar.facade_chat, tenant, dialect), dialect)


def _success(response: Response, counts: Mapping[str, int | None], message: str) -> dict[str, str]:
    """Trinity's answer, with the counts that are known as a header."""
    known = (f"{name}={count}" for name, count in counts.items() if count is not None)
    response.headers[_RESULT] = ", ".join(known)
    return {"status": "success", **({"message": message} if message else {})}


async def _feedback(request: Request, sidecar: Sidecar) -> ExplorerFeedback:
    """The body, whatever its content type: Trinity does not ask for one either."""
    body = await whole_body(request)
    try:
        size = memory_of(body, copies=COPIES)
        async with sidecar.context.parsing.held(size, Share.CONTROL, patience=PATIENCE):
            return ExplorerFeedback.model_validate_json(body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors(include_url=False)]
        raise RequestValidationError(problems) from error
