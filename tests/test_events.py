"""`GET /events`: what GET /status and GET /serving show, and marks of the lists, as they change."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from event_stream import reading
from loops import Loop, RunLoop
from processes import AWAY, Production, alive, metric, running
from serving import until
from shared_by_tenants import RunShared

from slipstream.api import events
from slipstream.output import Output
from slipstream.proxy.server import Stop
from slipstream.serve.shared import shared_in_memory
from slipstream.serve.sockets import CONTROL, open_sockets
from slipstream.serve.training import run_training
from slipstream.settings.sidecar import Settings

LISTS = {"tasks", "versions", "rollouts", "experiments", "preferences", "evaluations", "audit", "datasets"}


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PAUSE", 0.05)


def settled(status: dict[str, Any]) -> dict[str, Any]:
    """Without what passes with time."""
    return {**status, "next_commit": None, "traffic": None, "today": None}


async def open_streams(loop: Loop) -> float:
    text = (await loop.client.get("/metrics")).text
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith("slipstream_event_streams ")))


async def test_a_stream_begins_with_the_whole_state_and_goes_on_with_what_changes(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 2}) as loop:
        async with reading(loop.client) as page, reading(loop.client) as other:
            state = await page.first()
            assert list(state) == ["status", "serving", "changed"]
            assert state["serving"] == (await loop.client.get("/serving")).json()
            assert set(state["changed"]) == LISTS
            assert set(state["status"]) == set(await loop.status())
            await other.first()
            assert await open_streams(loop) == 2

            await loop.chat("hello")
            await until(lambda: loop.ready(2))
            status = await page.until("status", lambda found: found["next_commit"]["experiences_ready"] == 2)
            assert settled(status) == settled(await loop.status())
            marks = await other.until("changed", lambda found: found["tasks"] != state["changed"]["tasks"])
            assert {name for name in LISTS if marks[name] == state["changed"][name]} >= {"rollouts", "evaluations"}

            await loop.client.post("/serving/kill")
            assert (await page.until("serving", lambda found: found["killed"]))["epoch"] == 1
            audited = await other.until("changed", lambda found: found["audit"] != marks["audit"])
            assert audited["audit"] != state["changed"]["audit"]
        await until(lambda: none_open(loop))

        async with reading(loop.client, "/events?seconds=0") as script:
            assert await script.rest() == ["status", "serving", "changed"]
        for wrong in ("-1", "601", "nan", "x"):
            refused = await loop.client.get("/events", params={"seconds": wrong})
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, "seconds")


async def none_open(loop: Loop) -> bool:
    """Whether the training side knows that tabs were closed."""
    return await open_streams(loop) == 0


@pytest.mark.slow
async def test_a_stream_shows_what_its_key_may_see(run_shared: RunShared) -> None:
    async with run_shared(rewards={"calculators": [{"exact_match": {}}]}) as shared:
        client = shared.loop.client
        await shared.chat("agent-a")

        async def failed() -> Any:
            return (await shared.ask("admin", "GET", "/status")).json()["failed_runs"]

        await until(failed)
        seen: dict[str, Any] = {}
        for key in ("admin", "metrics", "admin-a", "admin-b"):
            async with reading(client, headers=shared.by(key)) as page:
                state = await page.first()
            status = state["status"]
            assert ("datasets" in state["changed"]) is (key == "admin")
            assert settled(status) == settled((await shared.ask(key, "GET", "/status")).json())
            seen[key] = [run["reason"] for run in status["failed_runs"]]
        assert seen["admin"] == seen["admin-a"] != []
        assert None not in seen["admin"]
        assert seen["admin-b"] == []
        for key in ("agent-a", "annotator-a"):
            assert (await shared.ask(key, "GET", "/events")).status_code == 403
        assert (await client.get("/events")).status_code == 401
        elsewhere = {"x-slipstream-tenant": "beta"}
        assert (await shared.ask("admin-a", "GET", "/events", headers=elsewhere)).status_code == 403
        async with reading(client, headers={**shared.by("admin"), **elsewhere}) as page:
            assert (await page.first())["status"]["failed_runs"] == []


async def test_one_stream_too_many_is_refused_and_the_open_ones_end_with_the_sidecar(run_loop: RunLoop) -> None:
    async with AsyncExitStack() as held:
        async with run_loop(limits={"streams": 8}) as loop:
            tabs = await held.enter_async_context(httpx.AsyncClient(base_url=loop.url, timeout=30))
            pages = [await held.enter_async_context(reading(tabs)) for _ in range(2)]
            refused = await loop.client.get("/events")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_streams")
            assert int(refused.headers["retry-after"]) > 0
            assert (await loop.client.get("/status")).status_code == 200
            reads = [asyncio.create_task(page.rest()) for page in pages]
        began = time.monotonic()
        await asyncio.gather(*reads)  # one that was cut raises
        assert time.monotonic() - began < 1


@pytest.mark.slow
async def test_the_training_side_does_not_wait_for_a_reader_that_stands_still(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def long_view(*_: object) -> dict[str, Any]:
        return {"long": "x" * 8_000_000}

    monkeypatch.setattr("slipstream.api.events.serving_view", long_view)
    settings = Settings.model_validate(
        {"listen": "127.0.0.1:0", "store": {"url": store_url}, "explorer": {"base_url": AWAY}}
    )
    stop, shared, serving = Stop(), shared_in_memory(1), asyncio.Event()
    with open_sockets(settings) as sockets:
        running = asyncio.create_task(run_training(settings, sockets, shared, Output(), stop, serving.set))
        await serving.wait()
        reader, writer = await asyncio.open_unix_connection(sockets.folder / CONTROL)
        writer.write(b"GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b"event: status")
        began = time.monotonic()
        stop.now.set()
        await running
        assert time.monotonic() - began < 10
        writer.close()


@pytest.mark.slow
async def test_neither_an_upgrade_nor_the_end_waits_for_streams(
    tmp_path: Path, production: tuple[Production, str]
) -> None:
    _, url = production
    async with running(tmp_path, url, proxy={"workers": 2, "sockets": str(tmp_path / "run")}) as sidecar:
        before = [pid for name, pid in sidecar.children().items() if name != "log"]
        tabs = httpx.AsyncClient(base_url=sidecar.url, timeout=60)
        async with tabs, reading(tabs) as page, reading(tabs) as other:
            await page.first()
            sidecar.send(signal.SIGUSR2)
            await page.rest(240)  # a successor's workers take connections first
            await other.rest()
        await until(lambda: not any(alive(pid) for pid in before), 60)
        async with httpx.AsyncClient(base_url=sidecar.url, timeout=60) as tabs, reading(tabs) as page:
            await page.first()
            assert await metric(sidecar.url, "slipstream_event_streams") == 1
            began = time.monotonic()
            sidecar.send(signal.SIGTERM)
            await page.rest()
            await sidecar.ended()
            assert time.monotonic() - began < 15
