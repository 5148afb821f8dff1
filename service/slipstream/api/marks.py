"""`POST /marks`: this task is worth training on."""

from __future__ import annotations

import time
import uuid
from typing import Self

from fastapi import APIRouter
from pydantic import Field, JsonValue, model_validator

from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import ScopeDep, reference
from slipstream.http.body import Body, MsgId, Name
from slipstream.store import tasks
from slipstream.store.tables.feedback import MarkRow

router = APIRouter(tags=["marks"])


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
    now = time.time()
    mark = MarkRow(
        id=uuid.uuid4().hex,
        labels=sidecar.redactor.redact(body.labels),
        meta=sidecar.redactor.redact(body.metadata),
        state="waiting",
        created_at=now,
        expires_at=now + sidecar.settings.selection.mark_ttl(),
    )
    async with sidecar.database.write() as session:
        if body.task_id is not None:
            mark.task_id = await reference(session, scope, "task_id", stored_id(sidecar, body.task_id))
        elif body.msg_id is not None:
            mark.msg_id = await reference(session, scope, "msg_id", body.msg_id)
        rescore = await tasks.add_mark(session, mark)
    sidecar.decide()
    if rescore:
        sidecar.rescore()
    return {"id": mark.id, "state": mark.state}
