"""`/quarantine`: what the training side died of, and what is to be done about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal, Self

from fastapi import APIRouter
from pydantic import Field, model_validator

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep, author
from slipstream.http.body import Body
from slipstream.store import audit, quarantine, quarantine_release
from slipstream.store.audit import Action, Write
from slipstream.store.lengths import REF_LENGTH
from slipstream.store.quarantine_release import Quarantined
from slipstream.tenants import name_of

router = APIRouter(tags=["operations"], route_class=BodyRoute)

_MOST = 1000
"""Rows of each kind in an answer; what is there beyond is seen when these are gone."""


class ReleaseBody(Body):
    """An action: on everything that is set apart, on one kind of it, or on one row."""

    action: Literal["retry", "drop"]
    kind: Literal["exchange", "task", "run"] | None = None
    id: str | None = Field(default=None, min_length=1, max_length=REF_LENGTH, pattern=r"^[^\x00]*$")

    @model_validator(mode="after")
    def _names_one_thing(self) -> Self:
        if self.id is not None and self.kind is None:
            raise ValueError("kind: exchange, task or run, for an id; found none")
        return self


@router.get("/quarantine")
async def get_quarantine(sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Rows that are set apart, because the training side died three times while it worked on them; the oldest first."""
    async with sidecar.database.read() as session:
        found = await quarantine_release.listed(session, scope.tenant, _MOST)
    return {
        "quarantined": [
            {
                "kind": one.kind,
                "id": one.id,
                "task_id": None if one.task_id is None else name_of(one.task_id),
                "reason": one.reason,
                "since": one.since,
            }
            for one in found
        ]
    }


@router.post("/quarantine")
async def post_quarantine(body: ReleaseBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, int]:
    """Have what is set apart tried again, or give it up. Says how much of it was, and how much is still set apart."""
    now = time.time()
    async with sidecar.database.write() as session:
        some = await quarantine_release.listed(session, scope.tenant, _MOST, body.kind, body.id)
        if body.action == "retry":
            changed = await quarantine_release.retry(session, some, sidecar.membership.id, now)
        else:
            changed = await quarantine_release.drop(session, some, now)
        if changed:
            await audit.note(session, _write(body, some), author(scope), now)
        left = await quarantine.count(session, scope.tenant)
    sidecar.database.unscrubbed |= body.action == "drop"  # an exchange is deleted
    sidecar.take_up()
    return {"changed": changed, "left": sum(left.values())}


def _write(body: ReleaseBody, some: Sequence[Quarantined]) -> Write:
    """The entry of the audit: an exchange, of which nothing is read, names no task."""
    tasks = list(dict.fromkeys(one.task_id for one in some if one.task_id is not None))
    written = None if body.id is None else name_of(body.id)  # with its tenant it is longer than what a row holds
    return Write(Action(f"quarantine_{body.action}"), written, "task_id" if tasks else None, tasks)
