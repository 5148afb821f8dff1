"""The page follows the store, whichever of its readers comes last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from contexts import context
from prometheus_client import CollectorRegistry
from sqlalchemy.ext.asyncio import AsyncSession
from stores import ON_BOTH_STORES

from slipstream.explorer.serving_writer import ServingWriter
from slipstream.metrics import Metrics
from slipstream.serving.page import Split, page_in
from slipstream.store import serving
from slipstream.store.database import Database

LANE = "http://127.0.0.1:1/v1"


@ON_BOTH_STORES
async def test_a_reading_of_before_a_kill_does_not_open_the_page_again(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API reads the share while the stage notes a kill that a worker took."""
    made, _ = context(database, Metrics(CollectorRegistry()), serving={"mode": "on", "lane": {"base_url": LANE}})
    page = page_in(tmp_path)
    writer = ServingWriter(made, page)
    async with database.write() as session:
        await serving.serve(session, 8, 0.5, None, 1.0)
    await writer.step()

    whole, held, go = serving.current, asyncio.Event(), asyncio.Event()

    async def slow(session: AsyncSession) -> serving.Serving:
        found = await whole(session)
        if not held.is_set():
            held.set()
            await go.wait()
        return found

    monkeypatch.setattr(serving, "current", slow)
    reading = asyncio.create_task(writer.hold())
    await held.wait()
    page.stop(noted=False)
    noting = asyncio.create_task(writer.step())
    await asyncio.sleep(0.3)
    go.set()
    await asyncio.gather(reading, noting)
    assert writer.now.killed
    page.stop(noted=False)
    assert not page.unnoted, "it is closed already, and the store knows of it"


@ON_BOTH_STORES
async def test_what_a_process_of_before_wrote_holds_until_the_share_was_read(
    database: Database, tmp_path: Path
) -> None:
    made, _ = context(database, Metrics(CollectorRegistry()), serving={"mode": "on", "lane": {"base_url": LANE}})
    page, left = page_in(tmp_path), Split(3, 8, 0.25, 7, "kept/8", LANE)
    page.write(left)
    writer = ServingWriter(made, page)
    await writer.ask()  # the lane may be heard before the store
    assert page.split() == left
    assert writer.reason == "the share was not read yet"
    await writer.step()
    assert page.split() is None, "no share is set"
