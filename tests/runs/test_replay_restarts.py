"""A restart of the sidecar amid agent replays."""

from __future__ import annotations

import asyncio

import pytest
from loops import RunLoop
from replaying import ask, finish, open_runs, replay, sdk
from scripted import ScriptedExplorer
from serving import serving, until
from stores import ON_BOTH_STORES, stored_rows
from training_side import connected, training_side, unheard

from slipstream.dialects.form import Dialect
from slipstream.errors import RequestError
from slipstream.store.database import Database
from slipstream.store.replays import note_task
from slipstream.store.replays import open_runs as open_runs_of


async def test_a_restart_drops_what_it_may_have_cut_and_keeps_what_had_not_begun(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, runs=3)
        for run_id in (0, 1):
            async with sdk(loop, group["runs"][run_id]) as client:
                await ask(client)
        await finish(loop, run_id=0, reward=1)
    async with run_loop() as loop:
        runs = (await replay(loop))["runs"]
        assert [run["state"] for run in runs] == ["scored", "failed", "open"]
        assert "started again" in runs[1]["error"]


@pytest.mark.slow
@ON_BOTH_STORES
async def test_a_restart_drops_a_run_whose_first_call_it_cut(store_url: str) -> None:
    explorer = ScriptedExplorer()
    explorer.hold.clear()
    async with serving(explorer.app()) as url:
        async with training_side(store_url, url) as sidecar:
            await sidecar.runs.replays.open("t", 2, [], {}, None)
            call = asyncio.create_task(sidecar.runs.replays.answer("t", 0, Dialect.CHAT, connected(), unheard))
            await until(lambda: explorer.chats)
            call.cancel()  # as the end of the process does
            await asyncio.wait([call])
        explorer.hold.set()
        async with training_side(store_url, url) as sidecar:
            with pytest.raises(RequestError, match="started again"):
                await sidecar.runs.replays.admit("t", 0)
            assert (await sidecar.runs.replays.admit("t", 1)).state == "open"


@pytest.mark.slow
@ON_BOTH_STORES
async def test_any_number_of_planned_replays_ends(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        for number in range(33):  # thousand: more than PostgreSQL takes as parameters of one statement
            await note_task(session, f"t{number}", None, [], {}, 1.0)
            await open_runs_of(session, f"t{number}", 1000, 1.0, state="pending", by_client=False, due_at=1.0)
    await database.close()
    async with training_side(store_url, "http://127.0.0.1:9"):
        pass
    assert await stored_rows(store_url, "SELECT state, count(*) FROM groups GROUP BY state") == [("dropped", 33)]


@pytest.mark.slow
async def test_planned_replays_end_with_the_mode_that_would_begin_them(run_loop: RunLoop) -> None:
    webhook = {"url": "http://127.0.0.1:9", "secret": "s", "max_attempts": 99, "allow_private": True}
    async with run_loop(runs={"mode": "webhook", "webhook": webhook}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})

        async def tried() -> bool:
            return "slipstream_run_retries_total 0.0" not in (await loop.client.get("/metrics")).text

        await until(tried)
    async with run_loop() as loop:
        seen = await replay(loop)
        assert (seen["state"], seen["runs"][0]["state"]) == ("dropped", "failed")
