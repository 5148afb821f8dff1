"""Routes for operators and people: health, metrics, status, one task."""

from __future__ import annotations

import contextlib
from email.utils import formatdate
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from slipstream.api.context import AnySidecarDep, SidecarDep
from slipstream.api.events import HubDep
from slipstream.api.scope import ScopeDep
from slipstream.api.status_view import feedback_by_key, look, status_view
from slipstream.doctor import live
from slipstream.errors import RequestError
from slipstream.store import feedback_keys

router = APIRouter(tags=["operations"])


@router.get("/readyz")
async def readyz(sidecar: SidecarDep) -> dict[str, Any]:
    """The sidecar can do its work: the store answers. The Explorer's absence does not count: production flows."""
    try:
        async with sidecar.database.read() as session:
            await session.execute(text("SELECT 1"))
    except (SQLAlchemyError, OSError) as error:
        # whoever asks shows no key, and the reason names the database's host and user
        said = "the store does not answer; the log says why"
        raise RequestError(said, status=503, code="store_unavailable") from error
    return {"status": "ready", "explorer": sidecar.watch.up}


@router.get("/metrics", response_class=Response)
async def metrics(sidecar: AnySidecarDep, events: HubDep) -> Response:
    """Prometheus metrics. Where the store does not answer, its gauges stay as they were."""
    sidecar.metrics.event_streams.set(events.open)
    with contextlib.suppress(SQLAlchemyError, OSError):  # /readyz tells; what the process counts is wanted most now
        await sidecar.refresh_gauges()
        async with sidecar.database.read() as session:
            _, found = await look(sidecar, session, sidecar.watch.version)
            by_key = await feedback_by_key(sidecar, session)
        for state in feedback_keys.STATES:
            sidecar.metrics.feedback_keys.labels(state).set(sum(each.state == state for each in by_key))
        codes = {problem.code for problem in found}
        for problem in live.PROBLEMS:
            sidecar.metrics.problems.labels(problem.code).set(problem.code in codes)
    return Response(generate_latest(sidecar.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/status")
async def get_status(sidecar: SidecarDep, scope: ScopeDep, response: Response) -> dict[str, Any]:
    """Everything at a glance, for people: what is wrong, what is selected and why not, what was delivered."""
    view = await status_view(sidecar, scope)
    response.headers["date"] = formatdate(usegmt=True)  # the server gives none; the doctor compares clocks
    return view
