"""`POST /marks`: this task is worth training on."""

from __future__ import annotations

import time
import uuid
from typing import Self

from fastapi import APIRouter
from pydantic import Field, JsonValue, model_validator

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import ScopeDep, author, reference
from slipstream.http.body import Body, MsgId, Name
from slipstream.store import audit, tasks
from slipstream.store.audit import Action, Write

router = APIRouter(tags=["marks"], route_class=BodyRoute)


class MarkBody(Body):
    """One of `task_id` and `msg_id`, with labels and their data (such as `reference`, the right answer)."""

    task_id: Name | None = None
    msg_id: MsgId | None = None
    labels: list[Name] = Field(default_factory=list, max_length=100)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        self.has_one_of("task_id", "msg_id")
        return self


@router.post("/marks", status_code=202)
async def post_mark(body: MarkBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, str]:
    """Store a mark. It is `applied` where its task is stored, else `waiting` until the ttl of `explicit_mark`."""
    name = uuid.uuid4().hex
    labels, metadata = sidecar.redactor.redact(body.labels), sidecar.redactor.redact(body.metadata)
    now = time.time()
    async with sidecar.database.write() as session:
        task_id = msg_id = None
        if body.task_id is not None:
            task_id = await reference(session, scope, "task_id", stored_id(sidecar, body.task_id))
        elif body.msg_id is not None:
            msg_id = await reference(session, scope, "msg_id", body.msg_id)
        new = tasks.NewMark(name, task_id, msg_id, labels, metadata, sidecar.settings.selection.mark_ttl())
        added = await tasks.add_mark(session, new, now)
        about: Write = Write(Action.MARK, name, "task_id" if task_id else "msg_id", [task_id or msg_id or ""])
        await audit.note(session, about, author(scope), now)
    sidecar.decide()
    if added.rescore:
        sidecar.rescore()
    return {"id": name, "state": added.state}
