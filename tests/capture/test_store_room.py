"""A store that is as large as it may be: nothing new is captured, the rest goes on, and room shows by itself."""

from __future__ import annotations

import os

import pytest
from loops import RunLoop
from prometheus_client import CollectorRegistry
from serving import until
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from stores import ON_BOTH_STORES

from slipstream.capture.room import StoreRoom
from slipstream.metrics import Metrics
from slipstream.store.database import Database

BIG = 256 * 1024


@pytest.mark.slow
async def test_full_store_takes_no_calls_and_all_that_is_said_of_those_it_has(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        first = await loop.chat("kept")
        await until(lambda: loop.ready(1))
    async with run_loop(limits={"store_bytes": 1}) as loop:

        async def told(line: str) -> bool:
            return line in (await loop.client.get("/metrics")).text

        async def looked_at() -> bool:
            return not await told("slipstream_store_bytes 0.0")

        await until(looked_at)
        await loop.chat("not kept")
        await until(lambda: told('slipstream_calls_not_captured_total{reason="store_full"} 1.0'))
        said = await loop.client.post("/feedback", json={"msg_id": first["id"], "reward": 1})
        assert said.status_code == 202
        marked = await loop.client.post("/marks", json={"msg_id": first["id"]})
        assert (marked.status_code, marked.json()["state"]) == (202, "applied")


@ON_BOTH_STORES
async def test_capture_goes_on_once_enough_is_deleted(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    engine = create_async_engine(store_url, isolation_level="AUTOCOMMIT")

    async def run(statement: str, *rows: dict[str, object]) -> None:
        async with engine.connect() as connection:
            await connection.execute(text(statement), list(rows) or None)
            if not database.shared:
                await connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
            else:
                await connection.execute(text("VACUUM ANALYZE captured"))

    async def looked() -> bool:
        await room.step()
        return room.full

    try:
        await run("DELETE FROM captured")
        measured = StoreRoom(database, Metrics(CollectorRegistry()), 1)
        await measured.step()
        empty = measured.size
        assert empty is not None
        room = StoreRoom(database, Metrics(CollectorRegistry()), empty + 30 * BIG)
        parcels = [{"owner": 0, "id": at, "exchanges": 1, "packed": os.urandom(BIG)} for at in range(1, 41)]
        insert = "INSERT INTO captured (owner, id, exchanges, packed) VALUES (:owner, :id, :exchanges, :packed)"
        assert not await looked()
        await run(insert, *parcels)
        assert await looked()
        await run("DELETE FROM captured WHERE id <= 11")  # just below the limit, where it would begin and end again
        assert await looked()
        await run("DELETE FROM captured WHERE id <= 20")
        assert not await looked()
    finally:
        await engine.dispose()
        await database.close()
