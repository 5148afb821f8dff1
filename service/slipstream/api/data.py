"""`DELETE /data`: everything about a session or a task."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request

from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import ScopeDep, author, reference
from slipstream.capture.redacted import is_of
from slipstream.datasets import erasure as dataset_erasure
from slipstream.errors import RequestError
from slipstream.sidecar import Sidecar
from slipstream.store import audit, dataset_versions, erasure, quarantine
from slipstream.store.audit import Action, Write
from slipstream.store.erasure import Kind
from slipstream.store.lengths import ID_LENGTH

router = APIRouter(tags=["privacy"])

_log = structlog.get_logger(__name__)

_PATIENCE = 10.0
"""Seconds that a delivery under way, and captures that are not read yet, are waited for. What takes longer is deleted
when it is over, and the answer says that it is pending."""

_LOOK = 0.1
_LONGEST_FOUND = 200
"""Characters that an error quotes."""

_Name = Annotated[str | None, Query(min_length=1, max_length=ID_LENGTH)]


@router.delete("/data")
async def delete_data(
    request: Request, sidecar: SidecarDep, scope: ScopeDep, session_id: _Name = None, task_id: _Name = None
) -> dict[str, Any]:
    """Delete everything about a session or a task. Says what that was, what is still pending, what the Explorer had
    been given before, which cannot be taken back, and which data sets had rows of it. What is not known, or deleted
    already, is no error."""
    # What is named twice is not two sessions, and what is misspelt names nothing: neither may pass as deleted.
    given = [name for name, _ in request.query_params.multi_items()]
    if given not in (["session_id"], ["task_id"]):
        text = "the query: expected exactly one of session_id, task_id, and nothing else, found "
        raise RequestError(text + (" and ".join(given)[:_LONGEST_FOUND] or "none"), param="session_id")
    kind: Kind = "task_id" if session_id is None else "session_id"
    at, until = time.time(), time.monotonic() + _PATIENCE
    rows: Counter[str] = Counter()
    async with sidecar.database.write() as session:
        ref = await reference(session, scope, kind, stored_id(sidecar, session_id or task_id or ""))
        batches = await erasure.unread(session)
        found = await erasure.erase(session, kind, ref, at)
        rows["exchanges"] += await quarantine.delete_exchanges(session, lambda packed: is_of(packed, kind, ref))
        await audit.note(session, Write(Action.ERASURE, None, kind, [ref]), author(scope), at)
    undelivered = found.undelivered
    rows.update(found.rows)
    while True:
        async with sidecar.database.read() as session:
            unread = await erasure.still_unread(session, batches)
        if not (found.pending_groups or unread) or time.monotonic() > until:
            break
        await asyncio.sleep(_LOOK)
        if found.pending_groups:
            async with sidecar.database.write() as session:
                found = await erasure.erase(session, kind, ref, at)
            undelivered += found.undelivered
            rows.update(found.rows)
    await sidecar.database.scrub()
    removed = await _from_datasets(sidecar, kind, ref, at)
    async with sidecar.database.read() as session:
        told = await erasure.told(session, kind, ref)
        versions = await dataset_versions.trained_on(session, removed)
    sidecar.metrics.groups.labels("erased").inc(undelivered)
    pending = {"groups": found.pending_groups, "exchanges": unread}
    _log.warning(
        "data_erased",
        **{kind: ref},
        deleted=dict(rows),
        pending=pending,
        delivered=told["delivered"]["experiences"],
    )
    datasets = [{"name": name, "rows": count, "versions": versions[name]} for name, count in removed.items()]
    return {"erased_at": at, "deleted": dict(rows), "pending": pending, "explorer": told, "datasets": datasets}


async def _from_datasets(sidecar: Sidecar, kind: Kind, ref: str, at: float) -> dict[str, int]:
    """Delete the rows that data sets have of it. Returns how many, by the names of the data sets."""
    directory = sidecar.settings.datasets.directory
    if directory is None:
        return {}
    return await asyncio.to_thread(dataset_erasure.erase, directory, dataset_erasure.deletion(kind, ref, at))
