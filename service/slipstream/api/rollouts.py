"""`/rollouts`: versions on their way from candidate to live."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from slipstream.access.scope import Scope
from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.scope import ScopeDep, author, require_all_tenants
from slipstream.http.body import Body
from slipstream.rollouts import commands
from slipstream.rollouts.plan import Plan
from slipstream.sidecar import Sidecar
from slipstream.store import rollouts
from slipstream.store.rollouts import Verdict

router = APIRouter(tags=["rollouts"], route_class=BodyRoute)

_LARGEST_ID = 2**63 - 1
_LARGEST_VERSION = 2**31 - 1
_OF_ALL = "a version is served to all tenants"

RolloutId = Annotated[int, Path(ge=1, le=_LARGEST_ID)]


class RolloutBody(Plan):
    """A rollout that is to be opened: the version, and how it is to go.

    Attributes:
        replace: a version that is live by an earlier rollout goes back to production first.
    """

    version: Annotated[int, Field(ge=0, le=_LARGEST_VERSION)]
    replace: bool = False


class PromoteBody(Body):
    """A promotion by hand.

    Attributes:
        force: promote the version whatever its verdict is.
    """

    force: bool = False


class RolloutQuery(BaseModel):
    """A page of rollouts."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[int, Field(ge=1, le=_LARGEST_ID)] | None = None


@router.post("/rollouts", status_code=201)
async def post_rollout(body: RolloutBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Open a rollout of a version. One at a time."""
    require_all_tenants(scope, _OF_ALL)
    plan = Plan.model_validate(body.model_dump(exclude={"version", "replace"}))
    opened = await commands.open_rollout(
        sidecar.context, sidecar.rollouts, body.version, plan, author(scope), replace=body.replace
    )
    return commands.summary(opened)


@router.get("/rollouts")
async def get_rollouts(query: Annotated[RolloutQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """A page of rollouts, the newest first; `next` is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        found = await rollouts.listed(session, query.limit + 1, query.cursor)
    page = found[: query.limit]
    after = page[-1].id if len(found) > query.limit else None
    return {"rollouts": [commands.summary(each) for each in page], "next": after}


@router.get("/rollouts/{rollout_id}")
async def get_rollout(rollout_id: RolloutId, sidecar: SidecarDep) -> dict[str, Any]:
    """A rollout with its plan, its evidence, what is missing, and its decisions."""
    return await commands.shown(sidecar.context, sidecar.rollouts, rollout_id)


@router.post("/rollouts/{rollout_id}/pause")
async def post_pause(rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Stay at the share of now. Harm still rolls it back."""
    return await _by_hand(sidecar, scope, rollout_id, Verdict.PAUSE)


@router.post("/rollouts/{rollout_id}/resume")
async def post_resume(rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Go on after a pause."""
    return await _by_hand(sidecar, scope, rollout_id, Verdict.RESUME)


@router.post("/rollouts/{rollout_id}/advance")
async def post_advance(rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Go on to the next step, whatever is missing."""
    return await _by_hand(sidecar, scope, rollout_id, Verdict.ADVANCE)


@router.post("/rollouts/{rollout_id}/promote")
async def post_promote(
    rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep, body: PromoteBody | None = None
) -> dict[str, Any]:
    """Promote the version, if its verdict is better or equal, or by force."""
    note = "by force, whatever its verdict is"
    if body is None or not body.force:
        async with sidecar.database.read() as session:
            rollout = await rollouts.get(session, rollout_id)
            if rollout is not None and commands.can_be_promoted(rollout):
                found = await sidecar.verdicts.required(session, rollout.version)
                note = f"the verdict is {found['verdict']}"
    return await _by_hand(sidecar, scope, rollout_id, Verdict.PROMOTE, note)


@router.post("/rollouts/{rollout_id}/abort")
async def post_abort(rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Send all users back to production, and end the rollout."""
    return await _by_hand(sidecar, scope, rollout_id, Verdict.ABORT)


async def _by_hand(
    sidecar: Sidecar, scope: Scope, rollout_id: int, verdict: Verdict, note: str | None = None
) -> dict[str, Any]:
    require_all_tenants(scope, _OF_ALL)
    rollout = await commands.by_hand(sidecar.context, sidecar.rollouts, rollout_id, verdict, author(scope), note=note)
    await sidecar.serving.hold()  # the workers of this host go by it before the answer says so
    return commands.summary(rollout)
