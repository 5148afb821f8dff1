"""`/serving`: the share of users that a version of the policy answers, and the switch that takes it away."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from slipstream.api.bodies import BodyRoute
from slipstream.api.context import SidecarDep
from slipstream.api.pages import LARGEST_VERSION
from slipstream.api.scope import ScopeDep, author, require_all_tenants
from slipstream.errors import RequestError
from slipstream.http.body import Body
from slipstream.sidecar import Sidecar
from slipstream.store import audit, experiments, rollouts, serving, units
from slipstream.store.audit import Action, Write
from slipstream.versions.lanes import LaneStep

router = APIRouter(tags=["serving"], route_class=BodyRoute)

_OF_ALL = "a share is of all tenants' users"


class ShareBody(Body):
    """A version, and the share of the units that it answers."""

    version: Annotated[int, Field(ge=0, le=LARGEST_VERSION)]
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@router.get("/serving")
async def get_serving(sidecar: SidecarDep) -> dict[str, Any]:
    """Show which version answers which share of the users, whether its lane is ready, and how its requests went."""
    return await serving_view(sidecar)


async def serving_view(sidecar: Sidecar) -> dict[str, Any]:
    """Content of GET /serving.

    Raises:
        SQLAlchemyError, OSError: the store does not answer.
    """
    async with sidecar.database.read() as session:
        now = await serving.current(session)
        counts = {} if now.version is None else await units.counts(session, now.version)
    settings, lane, reason = sidecar.settings.serving, sidecar.serving.lane, sidecar.serving.reason_for(now)
    return {
        "mode": settings.mode,
        "version": now.version,
        "share": now.share,
        "killed": now.killed,
        "epoch": now.epoch,
        "changed_at": now.changed_at,
        "ready": reason is None,
        "reason": reason,
        "lane": {
            "base_url": None if settings.lane is None else settings.lane.base_url,
            "model": None if lane is None else lane.model,
            "step": None if lane is None else lane.step,
            "expected_step": now.lane_step,
        },
        "arms": counts,
    }


@router.post("/serving/share")
async def post_share(body: ShareBody, sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Have a version answer this share of the users from now on. The answer says whether its lane is ready."""
    require_all_tenants(scope, _OF_ALL)
    lane = sidecar.settings.serving.routed
    if lane is None and body.share > 0:
        text = "serving: expected mode on and a lane, without which no version can answer users; found none"
        raise RequestError(text, status=409, code="no_lane")
    if body.share > 0 and sidecar.settings.rollouts.by_two:
        text = "share: expected 0, because rollouts.approval is second_person and a version gets users by a rollout; "
        raise RequestError(f"{text}found {body.share:g}", param="share", status=409, code="second_person")
    there = None
    if body.share > 0:
        await sidecar.serving.ask()
        there = await sidecar.versions.in_lane()
    async with sidecar.database.write() as session:
        if (rollout := await rollouts.current(session)) is not None:
            text = f"share: rollout {rollout.id} of version {rollout.version} decides about it; abort that first"
            raise RequestError(text, param="share", status=409, code="rollout_open")
        if (experiment := await experiments.current(session)) is not None:
            text = (
                f"share: experiment {experiment.id} of version {experiment.version} decides about it; stop that first"
            )
            raise RequestError(text, param="share", status=409, code="experiment_open")
        before = await serving.current(session)
        if before.killed and body.share > 0:
            text = "share: production answers everybody since a kill; take it back first (POST /serving/revive)"
            raise RequestError(text, param="share", status=409, code="serving_killed")
        url = None if lane is None else lane.base_url
        goes_on = before.version == body.version and before.share > 0 and before.lane == url
        step = before.lane_step if goes_on else _step(sidecar, body.version, there) if body.share > 0 else None
        now = await serving.serve(session, body.version, body.share, step, time.time(), url)
        await audit.note(session, Write(Action.SERVING_SHARE, str(now.epoch)), author(scope), time.time())
    return await _held(sidecar)


@router.post("/serving/kill")
async def post_kill(sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Have production answer everybody from now on. No request goes to the lane once this is answered. A body is not
    read."""
    require_all_tenants(scope, _OF_ALL)
    async with sidecar.database.write() as session:
        now = await serving.kill(session, time.time())
        await audit.note(session, Write(Action.SERVING_KILL, str(now.epoch)), author(scope), time.time())
        stopped = await experiments.killed(session, author(scope), time.time())
    if stopped is not None:
        sidecar.experiments.told(stopped, experiments.Verdict.STOP)
    return await _held(sidecar)


@router.post("/serving/revive")
async def post_revive(sidecar: SidecarDep, scope: ScopeDep) -> dict[str, Any]:
    """Take a kill back: the share of before holds again. A body is not read."""
    require_all_tenants(scope, _OF_ALL)
    async with sidecar.database.write() as session:
        now = await serving.revive(session, time.time())
        await audit.note(session, Write(Action.SERVING_REVIVE, str(now.epoch)), author(scope), time.time())
    return await _held(sidecar, revived=True)


def _step(sidecar: Sidecar, version: int, there: LaneStep | None) -> int | None:
    """The step that the lane shows now: it is not to change while the share is set. None where it shows none.

    Args:
        there: the newest step in the lane's directory.

    Raises:
        RequestError: 409, it does not answer, or its step is another version.
    """
    lane = sidecar.serving.lane
    if lane is None or lane.model is None:
        text = f"share: the lane has to say first which version it serves; {sidecar.serving.reason}"
        raise RequestError(text, param="share", status=409, code="lane_not_ready")
    other = None
    if there is not None and there.step == lane.step:
        if there.version not in (None, version):
            other = f"expected {there.version}, which the lane serves as its step {there.step}; found {version}"
        elif there.replaced == version:
            other = (
                f"expected one that the lane serves; found {version}, and step {there.step} of the lane has the "
                "weights that another training gave this number"
            )
    if other is not None:
        raise RequestError(f"version: {other}", param="version", status=409, code="other_version")
    return lane.step


async def _held(sidecar: Sidecar, *, revived: bool = False) -> dict[str, Any]:
    now = await sidecar.serving.hold(revived=revived)
    reason = sidecar.serving.reason
    return {
        "version": now.version,
        "share": now.share,
        "killed": now.killed,
        "epoch": now.epoch,
        "ready": reason is None,
        "reason": reason,
    }
