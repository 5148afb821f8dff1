"""The sidecar's own key: with everything that goes to the sidecar, and with nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import openai
import pytest
from loops import Loop, RunLoop
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

import slipstream_client as slipstream
from slipstream.access.keys import as_hash, new_key
from slipstream_client.context import Context, Replay, entered

AGENT, TRAINED, ADMIN, STRANGER = new_key(), new_key(), new_key(), new_key()
ACCESS = {
    "keys": [
        {"name": "agent", "roles": ["proxy", "feedback"], "hash": as_hash(AGENT)},
        {"name": "trained-agent", "roles": ["proxy", "runs"], "hash": as_hash(TRAINED)},
        {"name": "admin", "roles": ["admin"], "hash": as_hash(ADMIN)},
    ]
}


@pytest.fixture
def run_guarded(run_loop: RunLoop):
    """A sidecar that asks for keys; the loop's own client has the admin's."""

    @asynccontextmanager
    async def start() -> AsyncIterator[Loop]:
        async with run_loop(access=ACCESS) as loop:
            loop.client.headers["x-slipstream-key"] = ADMIN
            yield loop

    return start


async def test_calls_marks_and_feedback_carry_it(run_guarded, ask) -> None:
    async with run_guarded() as loop:
        slipstream.configure(loop.url, api_key=AGENT)
        msg_id = await asyncio.to_thread(ask)
        slipstream.feedback(msg_id=msg_id, thumbs="up")
        slipstream.mark_answer("good", msg_id=msg_id)
        assert await asyncio.to_thread(slipstream.flush, 10)
        counts = slipstream.outbox_counts()
        assert (counts.sent, counts.refused) == (2, 0)
        with slipstream.http_client() as client:
            assert (await asyncio.to_thread(client.get, f"{loop.url}/v1/models")).status_code == 200


async def test_runs_and_their_calls_carry_it(run_guarded) -> None:
    async with run_guarded() as loop:
        slipstream.configure(loop.url, api_key=AGENT)
        opened = await loop.client.post("/runs/t", json={"runs": 1})
        with slipstream.http_client() as client:
            address = f"{loop.url}{opened.json()['runs'][0]['base_url']}/models"
            assert (await asyncio.to_thread(client.get, address)).status_code == 200, "the run's own address"
        with entered(Context(replay=Replay("t", 0))):
            async with slipstream.async_openai() as sdk:
                await sdk.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert len(loop.explorer.chats) == 1


@pytest.mark.slow
async def test_a_runner_needs_no_admin_key(run_guarded) -> None:
    async with run_guarded() as loop:
        slipstream.configure(loop.url, api_key=TRAINED)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1.0), lambda run: 1.0, repeat_time=2)

        @runner.agent
        def agent(question: str) -> str:
            messages = [{"role": "user", "content": question}]
            with slipstream.openai(api_key="production's") as sdk:
                return str(sdk.chat.completions.create(model="prod", messages=messages).choices[0].message.content)

        runner.start()
        await asyncio.to_thread(agent, "hello")
        await asyncio.to_thread(runner.stop)
        assert runner.stats.dropped == {}
        assert len(loop.explorer.trained) == 2, "its stop() has committed both runs"
        audit = (await loop.client.get("/audit")).json()["entries"]
        assert {each["key"] for each in audit} == {"trained-agent"}


async def test_a_started_runner_goes_on_with_the_key_that_replaces_its_own(run_guarded) -> None:
    async with run_guarded() as loop:
        slipstream.configure(loop.url, api_key=STRANGER)
        runner = slipstream.TrainingRunner(slipstream.SamplingRate(1.0), lambda run: 1.0, repeat_time=1)

        async with slipstream.async_openai(api_key="production's") as sdk, runner:

            @runner.agent
            async def agent(question: str) -> None:
                await sdk.chat.completions.create(model="prod", messages=[{"role": "user", "content": question}])

            with pytest.raises(openai.AuthenticationError):
                await agent("hello")
            slipstream.configure(loop.url, api_key=TRAINED)
            await agent("hello")
        assert (runner.stats.finished, runner.stats.failed) == (1, {})
        assert runner.stats.dropped == {"production_failed": 1}
        assert len(loop.explorer.trained) == 1


async def test_it_goes_nowhere_else_not_even_after_a_redirect() -> None:
    seen: list[str | None] = []

    async def elsewhere(request: Request) -> JSONResponse:
        seen.append(request.headers.get("x-slipstream-key"))
        return JSONResponse({})

    async with serving(Starlette(routes=[Route("/{path:path}", elsewhere)])) as other:

        async def away(request: Request) -> RedirectResponse:
            seen.append(request.headers.get("x-slipstream-key"))
            return RedirectResponse(f"{other}/v1/models")

        async with serving(Starlette(routes=[Route("/v1/models", away)])) as url:
            slipstream.configure(url, api_key=AGENT)
            async with slipstream.async_http_client() as client:
                await client.get(f"{url}/v1/models")
                await client.get(f"{other}/v1/models")
    assert seen == [AGENT, None, None]


async def test_another_key_is_for_a_gateway_and_goes_with_no_call() -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    async def note(request: Request) -> JSONResponse:
        headers = request.headers
        seen.append((request.url.path, headers.get("authorization"), headers.get("x-slipstream-key")))
        return JSONResponse({"id": "1", "state": "waiting"}, 202)

    async with serving(Starlette(routes=[Route("/{path:path}", note, methods=["GET", "POST"])])) as url:
        slipstream.configure(url, api_key="a gateway's")
        async with slipstream.async_http_client() as client:
            await client.get(f"{url}/v1/models")
        slipstream.feedback(msg_id="m", thumbs="up")
        assert await asyncio.to_thread(slipstream.flush, 10)
    assert seen == [("/v1/models", None, None), ("/feedback", "Bearer a gateway's", None)]


async def test_what_is_refused_says_what_to_set(run_guarded, ask, caplog: pytest.LogCaptureFixture) -> None:
    async with run_guarded() as loop:
        slipstream.configure(loop.url)
        with caplog.at_level(logging.WARNING, "slipstream_client"):
            slipstream.feedback(msg_id="m", thumbs="up")
            assert await asyncio.to_thread(slipstream.flush, 10)
        assert "set SLIPSTREAM_API_KEY, or configure(api_key=...)" in caplog.text
        with pytest.raises(openai.AuthenticationError, match="SLIPSTREAM_API_KEY"):
            await asyncio.to_thread(ask)
        slipstream.configure(loop.url, api_key=STRANGER)
        with pytest.raises(slipstream.SidecarRefused, match=r"401 .*the key is SLIPSTREAM_API_KEY's") as refused:
            await asyncio.to_thread(slipstream.commit)
        assert STRANGER not in str(refused.value)
        slipstream.configure(loop.url, api_key=AGENT)
        with pytest.raises(slipstream.SidecarRefused, match=r"403 .*the role runs or admin"):
            await asyncio.to_thread(slipstream.commit)
        slipstream.configure(loop.url, api_key=ADMIN)
        await asyncio.to_thread(slipstream.commit)


@pytest.mark.parametrize("key", ["slp_a\nb", "slp_ä"])
def test_a_key_that_is_no_header_is_refused_by_name(key: str) -> None:
    with pytest.raises(ValueError, match=r"^api_key: ") as refused:
        slipstream.configure("http://127.0.0.1:8100", api_key=key)
    assert key not in str(refused.value)


def test_no_request_of_httpx_is_touched_without_a_key() -> None:
    slipstream.configure("http://127.0.0.1:8100")
    with slipstream.http_client(transport=httpx.MockTransport(lambda request: httpx.Response(200))) as client:
        assert "x-slipstream-key" not in client.get("http://127.0.0.1:8100/v1/models").request.headers
