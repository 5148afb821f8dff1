"""PostgreSQL goes away, or says nothing any more, under load: production does not notice, nothing is acknowledged that
is not stored, and all goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from loops import Loop, RunLoop
from lost_commit import lose_a_commit
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess
from slow_link import slow_link
from stores import PostgresServer, postgres_server

from slipstream.store import database, runs


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that nobody else uses."""
    with postgres_server() as own:
        yield own


def _refused(answer: Any) -> bool:
    if answer.status_code == 202:
        return False
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_failed"), answer.text
    assert int(answer.headers["retry-after"]) > 0
    return True


async def _chats(loop: Loop, *names: str) -> None:
    for name in names:
        await asyncio.wait_for(loop.chat("hello", {"x-slipstream-task-id": name}), 5)


async def _goes_on(loop: Loop, *names: str) -> None:
    """Feedback is taken again, and each of these tasks is stored, run and delivered."""

    async def taken() -> bool:
        return not _refused(await loop.client.post("/feedback", json={"task_id": names[0], "thumbs": "up"}, timeout=60))

    await until(taken, 60)

    async def all_ready() -> bool:
        return await loop.ready(len(names))

    await until(all_ready, 90)
    assert (await loop.commit())["experiences"] == len(names)
    for name in names:
        task = await loop.task(name)
        assert task is not None
        assert len(task["calls"]) == 1


@pytest.mark.slow
async def test_a_server_that_is_started_again(server: PostgresServer, run_loop: RunLoop) -> None:
    async with run_loop(store={"url": server.fresh(), "lease": "2s"}) as loop:
        await _chats(loop, "before")
        await until(lambda: loop.ready(1))
        await asyncio.to_thread(server.stop)
        await _chats(loop, "meanwhile", "more")
        for path, said in (("/feedback", {"task_id": "before", "thumbs": "up"}), ("/marks", {"task_id": "before"})):
            assert _refused(await loop.client.post(path, json=said))
        ready = await loop.client.get("/readyz")
        told = ready.json()["error"]["message"]  # to whoever has no key: nothing of the database's host and user
        assert (ready.status_code, told) == (503, "the store does not answer; the log says why")
        assert (await loop.client.get("/healthz")).status_code == 200
        await asyncio.to_thread(server.start)
        await _goes_on(loop, "before", "meanwhile", "more")


@pytest.mark.slow
async def test_a_server_that_is_slow(
    new_postgres: Callable[[], str], run_loop: RunLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        slow_link(new_postgres(), tmp_path) as link,
        run_loop(store={"url": link.url, "lease": "60s"}) as loop,
    ):
        await _chats(loop, "before")
        await until(lambda: loop.ready(1))
        for name in ("_LONGEST_WAIT", "_LONGEST_WRITE", "_LONGEST_READ"):
            monkeypatch.setattr(database, name, 8.0)
        monkeypatch.setattr(database, "_MOST_WAITING", 20)
        link.delay = 2.0  # of each statement, so that no transaction comes to its end in time
        said = {"task_id": "before", "thumbs": "up"}
        posts = asyncio.gather(*(loop.client.post("/feedback", json=said, timeout=20) for _ in range(40)))
        await _chats(loop, "meanwhile", "more")
        answers = await posts
        assert all(map(_refused, answers))
        took = sorted(answer.elapsed.total_seconds() for answer in answers)
        assert took[10] < 7, "those for whom there is no room are told so at once"
        assert took[-1] < 15, "the wait and the transaction have one limit"
        link.delay = 0.0
        for name in ("_LONGEST_WAIT", "_LONGEST_WRITE", "_LONGEST_READ"):
            monkeypatch.setattr(database, name, 30.0)
        await _goes_on(loop, "before", "meanwhile", "more")


@pytest.mark.slow
async def test_a_sidecar_that_is_started_while_its_store_is_away(server: PostgresServer, tmp_path: Path) -> None:
    """As after a power cut, or where the store is what takes long to come back."""
    url = server.fresh()
    await asyncio.to_thread(server.stop)
    async with serving(production_app()) as production_url, serving(ScriptedExplorer().app()) as explorer_url:
        sidecar = SidecarProcess(tmp_path, production_url, explorer_url, store={"url": url})
        await sidecar.start(ready=False)
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=20) as client:
            loop = Loop(sidecar.url, ScriptedExplorer(), client)
            await until(lambda: sidecar.children().get("training"), 60)
            await _chats(loop, "meanwhile")
            said = {"task_id": "meanwhile", "thumbs": "up"}
            assert _refused(await client.post("/feedback", json=said))
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/metrics")).status_code == 200
            await asyncio.to_thread(server.start)
            await sidecar.ready()
            assert not _refused(await client.post("/feedback", json=said))
            await until(lambda: loop.task("meanwhile"), what="what was captured is stored")

            await asyncio.to_thread(server.stop)
            killed = sidecar.children()["training"]
            os.kill(killed, signal.SIGKILL)
            await until(lambda: sidecar.children().get("training", killed) != killed)
            assert _refused(await client.post("/feedback", json=said))
            assert await sidecar.end(signal.SIGTERM) == 0, "nothing waits for it at the end"


@pytest.mark.slow
async def test_runs_that_were_claimed_and_nobody_heard_of_it_are_sent(
    new_postgres: Callable[[], str], run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The COMMIT's answer is lost: they are this sidecar's, and it does not know."""
    lost = lose_a_commit(monkeypatch, runs)
    async with run_loop(store={"url": new_postgres()}) as loop:
        await _chats(loop, "t")
        await until(lambda: loop.ready(1), 30)
        assert lost
        assert len(loop.explorer.chats) == 1


@pytest.mark.slow
async def test_a_server_that_hangs(server: PostgresServer, run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_loop(store={"url": server.fresh(), "lease": "60s"}) as loop:
        await _chats(loop, "before")
        await until(lambda: loop.ready(1))
        for name in ("_LONGEST_WAIT", "_LONGEST_WRITE", "_LONGEST_READ"):
            monkeypatch.setattr(database, name, 1.0)
        server.send(signal.SIGSTOP)
        try:
            await _chats(loop, "meanwhile", "more")
            said = {"task_id": "before", "thumbs": "up"}
            answers = await asyncio.gather(*(loop.client.post("/feedback", json=said, timeout=20) for _ in range(5)))
            assert all(map(_refused, answers))
        finally:
            server.send(signal.SIGCONT)
        for name in ("_LONGEST_WAIT", "_LONGEST_WRITE", "_LONGEST_READ"):
            monkeypatch.setattr(database, name, 30.0)
        await _goes_on(loop, "before", "meanwhile", "more")
