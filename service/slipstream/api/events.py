"""`GET /events`: what the page shows, sent as it changes (server-sent events)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import xxhash
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from slipstream.access.scope import Scope
from slipstream.api.context import SidecarDep
from slipstream.api.event_hub import EventHub, State, Stream
from slipstream.api.scope import ScopeDep
from slipstream.api.serving import serving_view
from slipstream.api.status_view import status_view
from slipstream.errors import RequestError
from slipstream.proxy import open_files
from slipstream.proxy.limits import EVENTS, event_streams
from slipstream.sidecar import Sidecar
from slipstream.store import changes

router = APIRouter(tags=["operations"])

PAUSE = 1.0
"""Seconds between two looks."""

LIFE = 600.0
"""Seconds after which a stream ends, and is opened again: a key that has expired or was taken away shows nothing from
then on."""

_HEADERS = {
    "cache-control": "no-store",
    "x-accel-buffering": "no",  # nginx would keep events until it has some thousand bytes
}


def hub_of(sidecar: Sidecar) -> EventHub:
    """The hub of a sidecar's streams."""
    return EventHub(partial(_look, sidecar, secrets.randbits(64)), pause=PAUSE)


def _hub(request: Request) -> EventHub:
    hub: EventHub = request.app.state.events
    return hub


HubDep = Annotated[EventHub, Depends(_hub)]


async def _stream(hub: HubDep, sidecar: SidecarDep, scope: ScopeDep) -> AsyncIterator[Stream]:
    """A stream, which is counted until its answer has ended.

    Raises:
        RequestError: 503, there are as many as there may be.
    """
    settings = sidecar.settings
    limits = open_files.fitted(settings.limits, settings.proxy.workers, open_files.allowed())
    if hub.open >= (most := event_streams(limits)):
        text = f"{most} event streams are open, and no more may be; close tabs, or try again"
        raise RequestError(text, status=503, code="too_many_streams")
    # keys and sessions that may see the same share one look
    with hub.joined(msgspec.structs.replace(scope, key=None, session=None)) as stream:
        yield stream


@router.get(
    EVENTS,
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Events"}},
)
async def get_events(
    hub: HubDep,
    stream: Annotated[Stream, Depends(_stream)],
    seconds: Annotated[
        float, Query(ge=0, le=LIFE, allow_inf_nan=False, description="How long; 0 for what is there now.")
    ] = LIFE,
) -> StreamingResponse:
    """Send `status`, `serving` and `changed` now, and each of them again when it has changed."""
    return StreamingResponse(stream.pieces(hub, seconds), media_type="text/event-stream", headers=_HEADERS)


async def _look(sidecar: Sidecar, salt: int, scope: Scope) -> Mapping[str, State]:
    status = await status_view(sidecar, scope)
    serving = await serving_view(sidecar)
    async with sidecar.database.read() as session:
        marks = await changes.marks(session, scope.tenant)
    if scope.tenant is None:  # data sets are of all tenants
        marks["datasets"] = await asyncio.to_thread(_changed_at, sidecar.settings.datasets.directory)
    changed = {name: xxhash.xxh3_64_hexdigest(repr(mark).encode(), seed=salt) for name, mark in marks.items()}
    return {
        "status": _status(status),
        "serving": State(serving, serving, serving),
        "changed": State(changed, changed, changed),
    }


def _changed_at(directory: Path | None) -> tuple[Any, ...]:
    """Time of the last change of names in the folder of data sets: each is made, replaced and deleted by renaming."""
    try:
        return () if directory is None else (directory.stat().st_mtime_ns,)
    except OSError:  # there is none yet
        return ()


def _status(view: dict[str, Any]) -> State:
    """The status, compared without what passes with time alone: a page that shows that can count on by itself."""
    traffic = {**view["traffic"], "seconds": None}
    commit = {**view["next_commit"], "in_seconds": None}  # `at` stays
    webhooks = [{**each, "oldest_seconds": None} for each in view["webhooks"]]
    compared = {**view, "traffic": traffic, "next_commit": commit, "webhooks": webhooks}
    problems = [(each["code"], each["where"]) for each in view["problems"]]  # `found` may say for how long
    return State(view, compared, {**compared, "problems": problems, "traffic": None})
