"""`/runs/*`: agent replays. An agent is run again, its calls go to the policy model, and its end gives the reward."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Request, Response
from pydantic import Field, JsonValue

from slipstream.access.scope import Scope
from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.passing import Passing, models_response
from slipstream.api.scope import ScopeDep, author, reference
from slipstream.dialects.form import Dialect
from slipstream.errors import RequestError
from slipstream.facade.chat import Whole
from slipstream.http.body import Body, Name
from slipstream.runs.ending import EndingBody
from slipstream.runs.replay import base_path
from slipstream.sidecar import Sidecar
from slipstream.store.facade import LARGEST_RUN_ID
from slipstream.store.overview import replay_overview
from slipstream.tenants import qualified, tenant_of

router = APIRouter(prefix="/runs", tags=["runs"], route_class=BodyRoute)

_MOST_RUNS = 1000
"""More than any group algorithm compares; a larger number is a mistake."""

_PATIENCE = 30.0
"""Seconds for the Explorer's list of models."""

TaskId = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[^\x00]*$")]
"""Without the character NUL, which Trinity cannot store in PostgreSQL: each commit of such a group would fail."""

RunId = Annotated[int, Path(ge=0, le=LARGEST_RUN_ID)]

_KNOWN = {"chat/completions": "POST", "responses": "POST", "messages": "POST", "models": "GET"}
"""Paths that a run answers, with their method."""


class OpenBody(Body):
    """A group of runs, and what is known of their task: labels and data such as `reference`, the right answer."""

    runs: Annotated[int, Field(ge=1, le=_MOST_RUNS)]
    labels: list[Name] = Field(default_factory=list, max_length=100)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    session_id: Name | None = None


@router.post("/{task_id:path}/{run_id}/v1/chat/completions", response_class=Response)
async def post_run_chat(task_id: TaskId, run_id: RunId, sidecar: SidecarDep, scope: ScopeDep) -> Response:
    """A chat completion of the policy model, streamed or not, as the next call of this run."""
    return await _call(Dialect.CHAT, task_id, run_id, sidecar, scope)


@router.post("/{task_id:path}/{run_id}/v1/responses", response_class=Response)
async def post_run_response(task_id: TaskId, run_id: RunId, sidecar: SidecarDep, scope: ScopeDep) -> Response:
    """A call of OpenAI's Responses API, answered by the policy model: as a chat completion is."""
    return await _call(Dialect.RESPONSES, task_id, run_id, sidecar, scope)


@router.post("/{task_id:path}/{run_id}/v1/messages", response_class=Response)
async def post_run_message(task_id: TaskId, run_id: RunId, sidecar: SidecarDep, scope: ScopeDep) -> Response:
    """A call of Anthropic's Messages API, answered by the policy model: as a chat completion is."""
    return await _call(Dialect.MESSAGES, task_id, run_id, sidecar, scope)


@router.get("/{task_id:path}/{run_id}/v1/models", response_class=Response)
async def get_run_models(
    task_id: TaskId, run_id: RunId, sidecar: SidecarDep, scope: ScopeDep, request: Request
) -> Response:
    """The Explorer's list of models, the policy under its stable name. In Anthropic's form for its SDK, which sends
    `anthropic-version`."""

    async def listed() -> Whole:
        await sidecar.runs.replays.admit(await _reference(sidecar, scope, task_id), run_id)
        return await sidecar.policy_models(_PATIENCE)

    return await models_response(request, listed())


@router.api_route(
    "/{task_id:path}/{run_id}/v1/{path:path}", methods=["GET", "POST"], response_class=Response, include_in_schema=False
)
async def refuse_other_calls(path: str) -> Response:
    """Refuse other routes of the SDKs (embeddings, token counts), whose path would otherwise be read as a task's
    name."""
    if path in _KNOWN:
        raise HTTPException(405, headers={"Allow": _KNOWN[path]})
    text = f"a run answers chat/completions, responses, messages and models; the policy model has no {path}"
    raise RequestError(text, status=404, code="not_found")


@router.post("/{task_id:path}/{run_id}/finish")
async def post_finish(
    task_id: TaskId, run_id: RunId, body: EndingBody, sidecar: SidecarDep, scope: ScopeDep
) -> dict[str, Any]:
    """End a run. Once this answers 200, it is not lost."""
    ending = body.as_ending(*sidecar.settings.rewards.clip)
    ref = await _reference(sidecar, scope, task_id)
    ended = await sidecar.runs.replays.end(ref, run_id, ending, author(scope))
    return {
        "task_id": task_id,
        "run_id": run_id,
        "state": ended.state,
        "msg_ids": ended.msg_ids,
        "policy_version": ended.policy_version,
    }


@router.post("/{task_id:path}", status_code=201)
async def post_runs(task_id: TaskId, body: OpenBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Begin a group of runs. Each has an address that stands in the place of the production model's."""
    ref = await _reference(sidecar, scope, task_id)
    session_id = None if body.session_id is None else stored_id(sidecar, body.session_id)
    session_ref = None if session_id is None else qualified(tenant_of(ref), session_id)
    group = await sidecar.runs.replays.open(ref, body.runs, body.labels, body.metadata, session_ref)
    return {
        "task_id": task_id,
        "group_id": group.id,
        "runs": [{"run_id": run_id, "base_url": base_path(task_id, run_id)} for run_id in group.run_ids],
    }


@router.get("/{task_id:path}")
async def get_runs(task_id: TaskId, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """The newest group of a task's replays, with each run's answers and its reward or failure."""
    async with sidecar.database.read() as session:
        found = await replay_overview(session, await reference(session, scope, "task_id", stored_id(sidecar, task_id)))
    if found is None:
        raise RequestError(f"the task {task_id!r} has no runs", param="task_id", status=404, code="not_found")
    return found


async def _call(dialect: Dialect, task_id: str, run_id: int, sidecar: Sidecar, scope: Scope) -> Response:
    ref = await _reference(sidecar, scope, task_id)
    return Passing(partial(sidecar.runs.replays.answer, ref, run_id, dialect), dialect)


async def _reference(sidecar: Sidecar, scope: Scope, task_id: str) -> str:
    task_id = stored_id(sidecar, task_id)
    if scope.tenant is not None:
        return qualified(scope.tenant, task_id)
    async with sidecar.database.read() as session:
        return await reference(session, scope, "task_id", task_id)
