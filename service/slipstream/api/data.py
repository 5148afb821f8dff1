"""`DELETE /data`: everything about a session or a task."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.access.scope import Scope
from slipstream.api.context import SidecarDep, stored_id
from slipstream.api.scope import TENANT, ScopeDep, author
from slipstream.capture.redacted import is_of
from slipstream.datasets import erasure as dataset_erasure
from slipstream.datasets.erasure import Deletion
from slipstream.errors import RequestError
from slipstream.sidecar import Sidecar
from slipstream.store import audit, dataset_versions, erasure, quarantine, tenancy
from slipstream.store.audit import Action, Write
from slipstream.store.erasure import Kind
from slipstream.store.lengths import ID_LENGTH
from slipstream.tenants import qualified

router = APIRouter(tags=["privacy"])

_log = structlog.get_logger(__name__)

_PATIENCE = 10.0
"""Seconds that a delivery under way, and captures that are not read yet, are waited for. What takes longer is deleted
when it is over, and the answer says that it is pending."""

_LOOK = 0.1
_LONGEST_FOUND = 200
"""Characters that an error quotes."""

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
        ref = await _reference(session, sidecar, scope, kind, stored_id(sidecar, session_id or task_id or ""))
        batches = await erasure.unread(session)
        found = await erasure.erase(session, kind, ref, at)
        rows["exchanges"] += await quarantine.delete_exchanges(session, lambda packed: is_of(packed, kind, ref))
        await audit.note(session, Write(Action.ERASURE, None, kind, [ref]), author(scope), at)
    sidecar.database.unscrubbed = True  # whatever becomes of this request
    undelivered, last = found.undelivered, found.at
    rows.update(found.rows)
    # before the wait: a reader of a data set deletes what is noted too, and this answer would not name that data set
    before = await _in_datasets(sidecar, dataset_erasure.deletion(kind, ref, last))
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
    applied = await _in_datasets(sidecar, dataset_erasure.deletion(kind, ref, last))
    in_datasets = Counter(before.rows) + Counter(applied.rows)
    unsettled = [*applied.waiting, *applied.failed]
    await sidecar.database.scrub()
    async with sidecar.database.read() as session:
        told = await erasure.told(session, kind, ref)
        versions = await dataset_versions.trained_on(session, {*in_datasets, *unsettled})
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
    in_datasets.update(dict.fromkeys(unsettled, 0))  # whether they have rows of it is not known
    datasets = [{"name": name, "rows": count, "versions": versions[name]} for name, count in in_datasets.items()]
    if scope.tenant is not None:  # which data sets there are is told to keys that reach all tenants
        datasets = [{"rows": count} for count in in_datasets.values() if count]
    pending |= {"datasets": len(unsettled)}
    return {"erased_at": at, "deleted": dict(rows), "pending": pending, "explorer": told, "datasets": datasets}


async def _reference(session: AsyncSession, sidecar: Sidecar, scope: Scope, kind: Kind, name: str) -> str:
    """The id in the store of what is to be deleted. A wrong tenant would say that all is deleted, and leave it.

    Raises:
        RequestError: 409, it may be of several tenants.
    """
    if scope.tenant is not None:
        return qualified(scope.tenant, name)
    configured = [key.scope.tenant for key in sidecar.keys.now() if key.scope.tenant is not None]
    tenants = await tenancy.to_delete(session, kind, name, configured, is_of)
    if len(tenants) > 1:
        text = f"{kind}: {name!r} may be of several tenants ({', '.join(tenants)}); say which in the header {TENANT}"
        raise RequestError(text, param=kind, status=409, code="several_tenants")
    return qualified(tenants[0], name)


async def _in_datasets(sidecar: Sidecar, deleted: Deletion) -> dataset_erasure.Applied:
    """Delete in the folder of data sets, in a thread of its own: it may wait for an export's."""
    directory = sidecar.settings.datasets.directory
    if directory is None:
        return dataset_erasure.Applied()
    return await asyncio.get_running_loop().run_in_executor(_ERASING, dataset_erasure.erase, directory, deleted)
