"""`GET /tasks`, `GET /tasks/{task_id}` and `GET /calls/{msg_id}`: from an answer to its task, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.holding import HoldDep
from slipstream.api.pages import LARGEST_VERSION
from slipstream.api.quoted import quoted
from slipstream.api.scope import ScopeDep, reference
from slipstream.dialects.form import Dialect
from slipstream.errors import RequestError
from slipstream.store.lengths import ID_LENGTH, MSG_ID_LENGTH
from slipstream.store.said import MEMORY
from slipstream.store.task_figures import FigureConditions
from slipstream.store.task_pages import BadCursor, Wanted, page
from slipstream.store.task_views import answer_view, task_view

router = APIRouter(tags=["tasks"])

_NO_NUL = r"^[^\x00]*$"
"""A character that PostgreSQL cannot look for."""

_Name = Annotated[str, Field(min_length=1, max_length=ID_LENGTH, pattern=_NO_NUL)]

_OF_FIGURES = ("dialect", "version", "reward_below", "reward_above")
"""Filters on a task's last call and its runs."""


class TasksQuery(BaseModel):
    """Filters of the list of tasks. A misspelt filter is refused, so that it does not list all tasks."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    session_id: _Name | None = None
    id_prefix: _Name | None = None
    state: Literal["open", "complete"] | None = None
    selected: bool | None = None
    label: _Name | None = None
    since: float | None = None
    until: float | None = None
    dialect: Dialect | None = None
    version: Annotated[int, Field(ge=0, le=LARGEST_VERSION)] | None = None
    reward_below: float | None = None
    reward_above: float | None = None
    text: Annotated[str, Field(min_length=2, max_length=200)] | None = None


@router.get("/tasks")
async def get_tasks(
    query: Annotated[TasksQuery, Query()], sidecar: SidecarDep, scope: ScopeDep, hold: HoldDep
) -> dict[str, Any]:
    """A page of tasks, the newest first; `next` is the cursor of the page after it. Nothing that was said is in it. The
    filter `text` needs an admin key."""
    if query.text is not None:
        if not scope.content:
            told = (
                "text: expected a key with the role admin, because the tasks that are found tell what was said in them"
            )
            raise RequestError(told, param="text", status=403, code="slipstream_role_missing")
        await hold(MEMORY)
    asked = query.model_dump(exclude={"limit", "cursor"})
    conditions = FigureConditions(**{name: asked.pop(name) for name in _OF_FIGURES})
    if query.session_id is not None:
        asked["session_id"] = stored_id(sidecar, query.session_id)
    wanted = Wanted(scope.tenant, **asked, figures=conditions)
    try:
        async with sidecar.database.read() as session:
            found = await page(session, wanted, query.limit, query.cursor)
    except BadCursor:
        text = "cursor: expected `next` of the page before, as it was given; found another text"
        raise RequestError(text, param="cursor") from None
    return {"tasks": found.tasks, "next": found.next}


@router.get("/tasks/{task_id:path}", response_model=dict[str, Any])
async def get_task(task_id: str, sidecar: SidecarDep, scope: ScopeDep, hold: HoldDep) -> Response:
    """One task: whether it was selected and why, its calls, and each run with its reward or its failure. With an admin
    key also what was said: the conversation, each answer, what rewards are made of."""
    async with sidecar.database.read() as session:
        ref = await reference(session, scope, "task_id", stored_id(sidecar, task_id))
        found = await task_view(session, ref, hold, content=scope.content)
    if found is None:
        raise RequestError(f"no task has the id {task_id!r}", param="task_id", status=404, code="not_found")
    return quoted(found)


@router.get("/calls/{msg_id:path}", response_model=dict[str, Any])
async def get_call(
    msg_id: Annotated[str, Path(min_length=1, max_length=MSG_ID_LENGTH, pattern=_NO_NUL)],
    sidecar: SidecarDep,
    scope: ScopeDep,
    hold: HoldDep,
) -> Response:
    """One answer, by the id of its chat completion: who gave it, its task, and its reward where the policy did. With an
    admin key also the request and the answer."""
    async with sidecar.database.read() as session:
        ref = await reference(session, scope, "msg_id", msg_id)
        found = await answer_view(session, ref, hold, content=scope.content)
    if found is None:
        raise RequestError(f"no answer has the id {msg_id!r}", param="msg_id", status=404, code="not_found")
    return quoted(found)
