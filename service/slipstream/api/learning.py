"""`/learning`: the rewards of the versions side by side, and two versions compared."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep
from slipstream.api.versions import VersionsQuery, number_of
from slipstream.errors import RequestError
from slipstream.evaluation import learning, two_versions
from slipstream.store import versions

router = APIRouter(tags=["versions"])

_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class TwoQuery(BaseModel):
    """The two versions, each by its number or an alias."""

    model_config = ConfigDict(extra="forbid")

    a: _Name
    b: _Name


@router.get("/learning")
async def get_learning(query: Annotated[VersionsQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """A page of versions with their rewards in training, on held-out cases and by live users, the newest first; `next`
    is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        found, after = await learning.curve(session, query.limit, query.cursor, sidecar.settings.rewards.clip)
    return {"range": list(sidecar.settings.rewards.clip), "versions": found, "next": after}


@router.get("/learning/compare")
async def get_comparison(query: Annotated[TwoQuery, Query()], sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Version `b` compared with version `a`: the difference of their rewards, and the tasks that changed most."""
    async with sidecar.database.read() as session:
        numbers = {name: await number_of(session, given, param=name) for name, given in query}
        known = await versions.known(session)
        for name, number in numbers.items():
            if number not in known:
                text = f"{name}: no version has the number {number}"
                raise RequestError(text, param=name, status=404, code="not_found")
        return await two_versions.compared(session, sidecar.verdicts, numbers["a"], numbers["b"], scope.tenant)
