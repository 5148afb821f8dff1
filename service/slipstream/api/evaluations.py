"""`/evaluations`: versions of the policy on the cases of suites."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import Field

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.pages import LARGEST_ID, LARGEST_VERSION, PageQuery, page_of
from slipstream.api.scope import ScopeDep, author, require_all_tenants
from slipstream.api.versions import OF_ALL, number_of
from slipstream.evaluation import commands
from slipstream.http.body import Body
from slipstream.store import evaluations

router = APIRouter(tags=["evaluations"], route_class=BodyRoute)

_Name = Annotated[str, Field(min_length=1, max_length=64)]

EvaluationId = Annotated[int, Path(ge=1, le=LARGEST_ID)]


class EvaluationBody(Body):
    """An evaluation that is asked for.

    Attributes:
        version: its number or an alias; null for the one that the Explorer serves.
        suite: null for the only one.
    """

    version: Annotated[int, Field(ge=0, le=LARGEST_VERSION)] | _Name | None = None
    suite: _Name | None = None


class EvaluationQuery(PageQuery):
    """A page of evaluations."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    version: Annotated[int, Field(ge=0, le=LARGEST_VERSION)] | None = None
    suite: _Name | None = None


@router.post("/evaluations", status_code=201)
async def post_evaluation(body: EvaluationBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Evaluate a version that is served now on a suite."""
    require_all_tenants(scope, OF_ALL)
    version = body.version
    if isinstance(version, str):
        async with sidecar.database.read() as session:
            version = await number_of(session, version)
    opened = await commands.ask(sidecar.context, sidecar.evaluations, version, body.suite, author(scope))
    return commands.summary(opened)


@router.get("/evaluations")
async def get_evaluations(query: Annotated[EvaluationQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """A page of evaluations, the newest first; `next` is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        found = await evaluations.listed(
            session, query.limit + 1, before=query.cursor, version=query.version, suite=query.suite
        )
    return page_of("evaluations", found, query.limit, commands.summary)


@router.get("/evaluations/{evaluation_id}")
async def get_evaluation(evaluation_id: EvaluationId, sidecar: SidecarDep) -> dict[str, Any]:
    """An evaluation with the value of each case."""
    async with sidecar.database.read() as session:
        return await commands.shown(session, sidecar.evaluations, evaluation_id)
