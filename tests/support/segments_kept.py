"""Segments in a store, past the sidecar."""

from __future__ import annotations

from sqlalchemy import select, text

from slipstream.store import segments
from slipstream.store.database import Database
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.runs import RunCallRow

_NEEDED = """
    WITH RECURSIVE needed(id) AS (
        SELECT segment_id FROM calls WHERE segment_id IS NOT NULL
        UNION SELECT original_segment_id FROM calls WHERE original_segment_id IS NOT NULL
        UNION SELECT segment_id FROM run_calls WHERE segment_id IS NOT NULL
        UNION SELECT parent_id FROM segments JOIN needed USING (id) WHERE parent_id IS NOT NULL
    )
    SELECT count(*), (SELECT count(*) FROM needed WHERE id NOT IN (SELECT id FROM segments)) FROM segments
    WHERE id NOT IN (SELECT id FROM needed)
"""


async def unneeded(database: Database) -> tuple[int, int]:
    """The number of segments that no call needs, and of those that are needed and not there."""
    async with database.read() as session:
        spare, missing = (await session.execute(text(_NEEDED))).one()
    return spare, missing


async def request_texts(database: Database) -> dict[str | None, bytes]:
    """The requests of all calls, as they read, by their msg_ids."""
    async with database.read() as session:
        rows = (await session.execute(select(CallRow.msg_id, CallRow.request, CallRow.segment_id))).all()
        requests = await segments.stored(session, [(own, last) for _, own, last in rows])
    return {row.msg_id: request.text() for row, request in zip(rows, requests, strict=True)}


async def replayed_texts(database: Database) -> dict[str, bytes]:
    """The requests of agent replays' calls, as they read, by their msg_ids."""
    async with database.read() as session:
        rows = (await session.execute(select(RunCallRow.msg_id, RunCallRow.request, RunCallRow.segment_id))).all()
        requests = await segments.stored(session, [(own, last) for _, own, last in rows])
    return {row.msg_id: request.text() for row, request in zip(rows, requests, strict=True)}


async def original_texts(database: Database) -> dict[str | None, bytes]:
    """The requests as they came of calls in another dialect than chat."""
    columns = CallRow.msg_id, CallRow.original_request, CallRow.original_segment_id
    async with database.read() as session:
        rows = (await session.execute(select(*columns).where(CallRow.original_request.is_not(None)))).all()
        requests = await segments.stored(session, [(own, last) for _, own, last in rows])
    return {row.msg_id: request.text() for row, request in zip(rows, requests, strict=True)}


async def count(database: Database) -> int:
    """The number of segments."""
    async with database.read() as session:
        return int(await session.scalar(text("SELECT count(*) FROM segments")) or 0)
