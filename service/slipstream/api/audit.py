"""`GET /audit`: who wrote what, by the names of keys."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from slipstream.api.context import SidecarDep
from slipstream.api.pages import PageQuery
from slipstream.api.scope import ScopeDep
from slipstream.store import audit
from slipstream.store.audit import Action, Wanted

router = APIRouter(tags=["audit"])


class AuditQuery(PageQuery):
    """Filters of the audit. A misspelt filter is refused, so that it does not list all entries."""

    model_config = ConfigDict(allow_inf_nan=False)

    key: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00]*$")] | None = None
    action: Action | None = None
    since: float | None = None
    until: float | None = None


@router.get("/audit")
async def get_audit(query: Annotated[AuditQuery, Query()], sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """A page of the audit, the newest entry first; `next` is the cursor of the page after it."""
    wanted = Wanted(scope.tenant, query.key, query.action, query.since, query.until)
    async with sidecar.database.read() as session:
        entries, after = await audit.page(session, wanted, query.limit, query.cursor)
    return {"entries": entries, "next": after}
