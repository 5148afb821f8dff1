"""Production's answers are found by their msg_id wherever they lie, the newest first."""

from __future__ import annotations

from sqlalchemy import delete, insert
from stores import ON_BOTH_STORES

from slipstream.store.database import Database
from slipstream.store.msg_ids import newest_call
from slipstream.store.tables.capture import CALL_BLOCK, CallRow, TaskRow

NEW = {"state": "complete", "labels": [], "meta": {}, "created_at": 0.0, "updated_at": 0.0}


def _call(pk: int, msg_id: str | None) -> dict[str, object]:
    position = {"position": pk, "request": b"", "answer": b"", "latency": 0.0, "started_at": 0.0}
    return {"id": pk, "task_id": "t", "msg_id": msg_id, **position}


@ON_BOTH_STORES
async def test_the_newest_call_of_that_id_is_found(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    far = 9 * CALL_BLOCK + 5
    calls = {
        1: "first",
        2: None,
        7: "again",
        CALL_BLOCK: "next block",
        CALL_BLOCK + 3: "again",
        far: "far",
        far + 1: "x",
    }
    async with database.write() as session:
        assert await newest_call(session, "first") is None, "an empty store"
        await session.execute(insert(TaskRow), {"id": "t", "session_id": "s", **NEW})
        await session.execute(insert(CallRow), [_call(pk, msg_id) for pk, msg_id in calls.items()])
        for msg_id, pk in (("first", 1), ("next block", CALL_BLOCK), ("again", CALL_BLOCK + 3), ("far", far)):
            assert await newest_call(session, msg_id) == pk
        assert await newest_call(session, "unknown") is None
        await session.execute(delete(CallRow).where(CallRow.id == CALL_BLOCK + 3))
        assert await newest_call(session, "again") == 7
    await database.close()
