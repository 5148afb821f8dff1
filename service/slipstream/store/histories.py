"""Captured calls by the answer that production gave, for conversations whose beginning the provider holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.dialects.form import Problem
from slipstream.store import segments
from slipstream.store.msg_ids import newest_call
from slipstream.store.segments import StoredRequest
from slipstream.store.tables.capture import CallRow, TaskRow


class StoredCall(NamedTuple):
    """A call, its bodies packed; the ids are those in the store."""

    msg_id: str
    session_id: str
    task_id: str
    request: StoredRequest
    answer: bytes
    original_request: StoredRequest
    problem: Problem | None


async def stored_calls(session: AsyncSession, msg_ids: Collection[str]) -> list[StoredCall]:
    """The newest call that was answered under each of these ids, where there is one and its original is kept."""
    found = []
    for msg_id in sorted(msg_ids):
        pk = await newest_call(session, msg_id)
        if pk is None:
            continue
        query = select(
            TaskRow.session_id, CallRow.task_id, CallRow.request, CallRow.segment_id, CallRow.answer,
            CallRow.original_request, CallRow.original_segment_id, CallRow.problem,
        )  # fmt: skip
        query = query.join(TaskRow, TaskRow.id == CallRow.task_id)
        row = (await session.execute(query.where(CallRow.id == pk))).first()
        if row is None or row.original_request is None:
            continue
        packed = [(row.request, row.segment_id), (row.original_request, row.original_segment_id)]
        request, original = await segments.stored(session, packed)
        found.append(StoredCall(msg_id, row.session_id, row.task_id, request, row.answer, original, row.problem))
    return found
