"""`/rollouts`: versions on their way from candidate to live."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from slipstream.access.scope import Scope
from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.pages import LARGEST_ID, LARGEST_VERSION, PageQuery, page_of
from slipstream.api.scope import ScopeDep, author, require_all_tenants
from slipstream.http.body import Body
from slipstream.rollouts import approval, commands
from slipstream.rollouts.plan import Plan
from slipstream.sidecar import Sidecar
from slipstream.store import rollouts
from slipstream.store.rollouts import Verdict

router = APIRouter(tags=["rollouts"], route_class=BodyRoute)

_OF_ALL = "a version is served to all tenants"

RolloutId = Annotated[int, Path(ge=1, le=LARGEST_ID)]


class RolloutBody(Plan):
    """A rollout that is to be opened: the version, and how it is to go.

    Attributes:
        replace: a version that is live by an earlier rollout goes back to production first.
    """

    version: Annotated[int, Field(ge=0, le=LARGEST_VERSION)]
    replace: bool = False


class PromoteBody(Body):
    """A promotion by hand.

    Attributes:
        force: promote the version whatever its verdict is.
    """

    force: bool = False


class ApproveBody(Body):
    """The decision that is approved: as it was asked for, so that nothing else is approved.

    Attributes:
        force: the promotion is one by force.
        at: when it was asked for, in Unix seconds; whatever waits, if it is left out.
    """

    action: Literal["advance", "promote"]
    force: bool = False
    at: float | None = None


@router.post("/rollouts", status_code=201)
async def post_rollout(body: RolloutBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Open a rollout of a version. One at a time."""
    require_all_tenants(scope, _OF_ALL)
    plan = Plan.model_validate(body.model_dump(exclude={"version", "replace"}))
    await sidecar.versions.check_there(body.version, "version")
    opened = await commands.open_rollout(
        sidecar.context, sidecar.rollouts, body.version, plan, author(scope), replace=body.replace
    )
    return commands.summary(opened)


@router.get("/rollouts")
async def get_rollouts(query: Annotated[PageQuery, Query()], sidecar: SidecarDep) -> dict[str, Any]:
    """A page of rollouts, the newest first; `next` is the cursor of the page after it."""
    async with sidecar.database.read() as session:
        found = await rollouts.listed(session, query.limit + 1, query.cursor)
    return page_of("rollouts", found, query.limit, commands.summary)


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
async def post_advance(
    rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep, response: Response
) -> dict[str, Any]:
    """Go on to the next step, whatever is missing; with two persons, once another one approves it."""
    if sidecar.settings.rollouts.by_two:
        return await _asked(sidecar, scope, rollout_id, Verdict.ADVANCE, response)
    return await _by_hand(sidecar, scope, rollout_id, Verdict.ADVANCE)


@router.post("/rollouts/{rollout_id}/promote")
async def post_promote(
    rollout_id: RolloutId, sidecar: SidecarDep, scope: ScopeDep, response: Response, body: PromoteBody | None = None
) -> dict[str, Any]:
    """Promote the version, if its verdict is better or equal, or by force; with two persons, once another one approves
    it."""
    force = body is not None and body.force
    note = await _verdict(sidecar, rollout_id, force=force)
    if sidecar.settings.rollouts.by_two:
        return await _asked(sidecar, scope, rollout_id, Verdict.PROMOTE, response, force=force)
    return await _by_hand(sidecar, scope, rollout_id, Verdict.PROMOTE, note)


@router.post("/rollouts/{rollout_id}/approve")
async def post_approve(
    rollout_id: RolloutId, body: ApproveBody, sidecar: SidecarDep, scope: ScopeDep
) -> dict[str, Any]:
    """Approve, as a second person, what another one has asked for."""
    require_all_tenants(scope, _OF_ALL)
    by = author(scope)
    asked = await approval.waiting(sidecar.context, rollout_id, body.action, by, force=body.force, at=body.at)
    note = None
    if asked.action == Verdict.PROMOTE:
        note = await _verdict(sidecar, rollout_id, force=asked.force)
    rollout = await approval.approve(sidecar.context, sidecar.rollouts, rollout_id, asked, by, note=note)
    await sidecar.serving.hold()
    return commands.summary(rollout)


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


async def _asked(
    sidecar: Sidecar, scope: Scope, rollout_id: int, verdict: Verdict, response: Response, *, force: bool = False
) -> dict[str, Any]:
    """Note a decision that a second person is to approve, and answer with 202."""
    require_all_tenants(scope, _OF_ALL)
    rollout = await approval.ask(sidecar.context, sidecar.rollouts, rollout_id, verdict, author(scope), force=force)
    response.status_code = 202
    return commands.summary(rollout)


async def _verdict(sidecar: Sidecar, rollout_id: int, *, force: bool) -> str:
    """The verdict that a promotion goes by, in words.

    Raises:
        RequestError: 409, it is neither better nor equal.
    """
    if not force:
        async with sidecar.database.read() as session:
            rollout = await rollouts.get(session, rollout_id)
            if rollout is not None and commands.can_be_promoted(rollout):
                found = await sidecar.verdicts.required(session, rollout.version)
                return f"the verdict is {found['verdict']}"
    return "by force, whatever its verdict is"
