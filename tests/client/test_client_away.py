"""An agent that marks and says feedback while the sidecar's training side is stopped, hung or failing."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from ports import free_port
from scripted import ScriptedExplorer, production_app
from serving import serving, until
from sidecar_process import SidecarProcess

import slipstream_client as slipstream
from slipstream_client import outbox

Ask = Callable[..., str]

CALLS = 1500
"""More than the outbox keeps."""


@pytest.fixture
async def production() -> AsyncIterator[str]:
    async with serving(production_app()) as url:
        yield url


@pytest.fixture
def stopped() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def hung() -> Iterator[str]:
    """Accepts, by its backlog, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class Failing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(500)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def failing() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("how", ["stopped", "hung", "failing"])
async def test_the_agent_works_and_nothing_grows(
    how: str, production: str, request: pytest.FixtureRequest, ask: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    slipstream.configure(request.getfixturevalue(how), timeout=0.2)
    threads = threading.active_count()

    def agent() -> None:
        """Its base_url is production's own, as it is where somebody takes the sidecar away from an agent."""
        with openai.OpenAI(base_url=f"{production}/v1", api_key="k", http_client=slipstream.http_client()) as client:
            for number in range(20):
                with slipstream.mark("a", task_id=f"order-{number}", reference="42"):
                    assert ask(client).startswith("prod-")
        for number in range(CALLS):
            with slipstream.mark("a", task_id=f"order-{number}"):
                pass
            slipstream.feedback(task_id=f"order-{number}", thumbs="up", comment="x" * 5000)

    await asyncio.wait_for(asyncio.to_thread(agent), 60)

    counts = slipstream.outbox_counts()
    assert counts.sent == 0
    assert counts.waiting <= outbox.MOST + 1
    assert counts.waiting_bytes <= outbox.MOST_BYTES
    assert counts.waiting + counts.dropped == 20 + 2 * CALLS
    assert threading.active_count() <= threads + 4  # the outbox's, its server's, and the one that the agent ran in

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "slipstream_client"]

    def waiting() -> list[str]:
        return [line for line in lines() if "wait for the sidecar, and the agent goes on" in line]

    assert len(await until(waiting)) == 1  # the first try may end after all of this
    assert len(lines()) == 2, lines()  # and that something is dropped
    assert not await asyncio.to_thread(slipstream.flush, 0.3)


async def test_one_line_says_that_the_sidecar_is_gone(stopped: str, caplog: pytest.LogCaptureFixture) -> None:
    slipstream.configure(stopped)
    for number in range(100):
        slipstream.feedback(task_id=f"order-{number}", thumbs="up")
        with slipstream.mark("a", task_id=f"order-{number}"):
            pass
    assert not await asyncio.to_thread(slipstream.flush, 0.2)

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "slipstream_client"]

    [line] = await until(lines)  # the first try may end later
    assert line.startswith(f"marks and feedback wait for the sidecar, and the agent goes on: the sidecar at {stopped}")


async def test_calls_through_a_sidecar_whose_training_side_fails_go_on(production: str, ask: Ask) -> None:
    """Its proxy still works: the mark goes with the call, the feedback is answered with an error."""
    slipstream.configure(production)  # knows /v1, and says 404 to all else

    def agent() -> None:
        with slipstream.openai() as client, slipstream.mark("a", task_id="order-17"):
            assert ask(client).startswith("prod-")
        slipstream.feedback(task_id="order-17", thumbs="up")
        assert slipstream.flush()

    await asyncio.to_thread(agent)
    assert slipstream.outbox_counts().refused == 1


@pytest.mark.slow
async def test_all_arrives_when_a_sidecar_that_hung_goes_on(tmp_path: Path, ask: Ask) -> None:
    async with serving(production_app()) as production_url, serving(ScriptedExplorer().app()) as explorer_url:
        process = SidecarProcess(tmp_path, production_url, explorer_url, selection={"explicit_mark": {}})
        await process.start()
        try:
            slipstream.configure(process.url, timeout=0.3)
            os.kill(process.children()["training"], signal.SIGSTOP)

            def agent() -> str:
                with slipstream.mark("hooked", task_id="order-17"):
                    msg_id = ask()
                with slipstream.mark("posted", task_id="order-18"):
                    pass
                slipstream.feedback(msg_id=msg_id, thumbs="up")
                return msg_id

            assert (await asyncio.to_thread(agent)).startswith("prod-")
            assert not await asyncio.to_thread(slipstream.flush, 1)

            os.kill(process.children()["training"], signal.SIGCONT)
            assert await asyncio.to_thread(slipstream.flush, 30)
            assert slipstream.outbox_counts().sent == 2
            async with httpx.AsyncClient(base_url=process.url, timeout=60) as client:

                async def task() -> dict[str, Any] | None:
                    response = await client.get("/tasks/order-17")
                    return response.json() if response.status_code == 200 else None

                assert (await until(task))["labels"] == ["hooked"]
        finally:
            await process.end(signal.SIGTERM)
