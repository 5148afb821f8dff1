"""`/experiments`: production and a version compared on users."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import Field

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.pages import LARGEST_ID, PageQuery, page_of
from slipstream.api.scope import ScopeDep, author, require_all_tenants
from slipstream.experiments import commands
from slipstream.experiments.plan import ExperimentPlan
from slipstream.http.body import Body, Name
from slipstream.store import experiments

router = APIRouter(tags=["experiments"], route_class=BodyRoute)

_OF_ALL = "a version is served to all tenants"

ExperimentId = Annotated[int, Path(ge=1, le=LARGEST_ID)]
Arm = Annotated[str, Field(min_length=1, max_length=256)]


class ExperimentBody(ExperimentPlan):
    """An experiment that is to be started: its name, its arms, and how it is to go.

    Attributes:
        a: `production`.
        b: `version:NUMBER`, or an alias of a version.
    """

    name: Name
    a: Arm = "production"
    b: Arm


class StopBody(Body):
    """The end of an experiment by hand.

    Attributes:
        decision: `b` has its version answer the users from now on; with `a`, or without one, production does.
        force: whatever the verdict for the version is.
    """

    decision: Literal["a", "b"] | None = None
    force: bool = False


@router.post("/experiments", status_code=201)
async def post_experiment(body: ExperimentBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Start an experiment. One at a time, and none while a rollout assigns users."""
    require_all_tenants(scope, _OF_ALL)
    plan = ExperimentPlan.model_validate(body.model_dump(exclude={"name", "a", "b"}))
    started = await commands.start_experiment(
        sidecar.context, sidecar.experiments, sidecar.verdicts, sidecar.versions, (body.a, body.b), body.name, plan,
        author(scope),
    )  # fmt: skip
    return commands.summary(started)


@router.get("/experiments")
async def get_experiments(query: Annotated[PageQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """A page of experiments, the newest first; `next` is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        found = await experiments.listed(session, query.limit + 1, query.cursor)
    return page_of("experiments", found, query.limit, commands.summary)


@router.get("/experiments/{experiment_id}")
async def get_experiment(experiment_id: ExperimentId, sidecar: SidecarDep) -> dict[str, Any]:
    """An experiment with its plan, its report, what is missing, and its decisions."""
    return await commands.shown(sidecar.context, sidecar.experiments, experiment_id)


@router.post("/experiments/{experiment_id}/stop")
async def post_stop(
    experiment_id: ExperimentId, sidecar: SidecarDep, scope: ScopeDep, body: StopBody | None = None
) -> dict[str, Any]:
    """End an experiment, and say who answers the users from now on. That can be said after its end too."""
    require_all_tenants(scope, _OF_ALL)
    said = body or StopBody()
    stopped = await commands.stop(
        sidecar.context, sidecar.experiments, sidecar.verdicts, experiment_id, said.decision, author(scope),
        force=said.force,
    )  # fmt: skip
    await sidecar.serving.hold()  # the workers of this host go by it before the answer says so
    return commands.summary(stopped)
