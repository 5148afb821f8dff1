"""`DELETE /data`: everything about a session or a task."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Query, Request

from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import ScopeDep, author, reference
from slipstream.capture.redacted import is_of
from slipstream.datasets import erasure as dataset_erasure
from slipstream.datasets.erasure import Deletion
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

T = TypeVar("T")

_ERASING = ThreadPoolExecutor(1, thread_name_prefix="datasets")

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
    undelivered, last = found.undelivered, found.at
    rows.update(found.rows)
    await _in_datasets(sidecar, dataset_erasure.note, dataset_erasure.deletion(kind, ref, last))  # before any wait
    while True:
        async with sidecar.database.read() as session:
            unread = await erasure.still_unread(session, batches)
        if not (found.pending_groups or unread) or time.monotonic() > until:
            break
        await asyncio.sleep(_LOOK)
        if found.pending_groups:
            async with sidecar.database.write() as session:
                found = await erasure.erase(session, kind, ref, at)
            undelivered, last = undelivered + found.undelivered, max(last, found.at)
            rows.update(found.rows)
    erased = await _in_datasets(sidecar, dataset_erasure.erase, dataset_erasure.deletion(kind, ref, last))
    applied = erased or dataset_erasure.Applied()
    await sidecar.database.scrub()
    async with sidecar.database.read() as session:
        told = await erasure.told(session, kind, ref)
        versions = await dataset_versions.trained_on(session, applied.rows)
    sidecar.metrics.groups.labels("erased").inc(undelivered)
    pending = {"groups": found.pending_groups, "exchanges": unread}
    _log.warning(
        "data_erased",
        **{kind: ref},
        deleted=dict(rows),
        pending=pending,
        delivered=told["delivered"]["experiences"],
    )
    for name, problem in applied.failed.items():
        _log.error("dataset_not_erased", dataset=name, reason=problem)
    datasets = [{"name": name, "rows": count, "versions": versions[name]} for name, count in applied.rows.items()]
    if scope.tenant is not None:  # which data sets there are is told to keys that reach all tenants
        datasets = [{"rows": count} for count in applied.rows.values()]
    pending |= {"datasets": len(applied.waiting) + len(applied.failed)}
    return {"erased_at": at, "deleted": dict(rows), "pending": pending, "explorer": told, "datasets": datasets}


async def _in_datasets(sidecar: Sidecar, act: Callable[[Path, Deletion], T], deleted: Deletion) -> T | None:
    """Do something about a deletion in the folder of data sets, in a thread of its own: it may wait for an export's.
    None if there is no folder."""
    directory = sidecar.settings.datasets.directory
    if directory is None:
        return None
    return await asyncio.get_running_loop().run_in_executor(_ERASING, act, directory, deleted)
