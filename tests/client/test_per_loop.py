"""Async clients that several event loops use."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest
from dialects_production import DialectsProduction
from scripted import production_app
from serving import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import slipstream_client as slipstream
from slipstream_client.context import Context, entered

CALL = {"model": "prod", "messages": [{"role": "user", "content": "hello"}]}


async def by_httpx(client: Any) -> str:
    response = await client.post("/chat/completions", json=CALL)
    return str(response.json()["choices"][0]["message"]["content"])


async def by_sdk(client: Any) -> str:
    return str((await client.chat.completions.create(**CALL)).choices[0].message.content)


async def by_messages(client: Any) -> str:
    return str((await client.messages.create(**CALL, max_tokens=9)).content[0].text)


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (lambda: slipstream.async_http_client(base_url=slipstream.settings().base_url), by_httpx),
        (lambda: slipstream.async_openai(max_retries=0), by_sdk),
        (lambda: slipstream.async_anthropic(max_retries=0), by_messages),
    ],
    ids=["httpx", "openai", "anthropic"],
)
async def test_loops_share_a_client_and_not_its_connections(make: Callable[[], Any], call: Callable[..., Any]) -> None:
    production = DialectsProduction().app() if call is by_messages else production_app()
    async with serving(production) as url:
        slipstream.configure(url)
        async with make() as client:

            async def several() -> list[str]:
                return list(await asyncio.gather(*(call(client) for _ in range(5))))

            assert await several() == ["echo: hello"] * 5
            for _ in range(2):
                assert await asyncio.to_thread(lambda: asyncio.run(several())) == ["echo: hello"] * 5
            assert await several() == ["echo: hello"] * 5
        with pytest.raises((RuntimeError, openai.APIConnectionError, anthropic.APIConnectionError)):
            await call(client)
    gc.collect()  # an open connection would warn, which is an error here


async def test_a_loop_that_has_ended_leaves_nothing_behind() -> None:
    """As in a synchronous server whose handlers say `asyncio.run(agent())`."""
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async with serving(production_app()) as url:
        slipstream.configure(url)
        client = slipstream.async_openai()

        async def agent() -> str:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return await by_sdk(client)

        for _ in range(5):
            assert await asyncio.to_thread(lambda: asyncio.run(agent())) == "echo: hello"
        gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1


async def test_each_loop_has_a_transport_of_its_own() -> None:
    made: list[httpx.AsyncHTTPTransport] = []

    def make() -> httpx.AsyncHTTPTransport:
        made.append(httpx.AsyncHTTPTransport())
        return made[-1]

    async with serving(production_app()) as url:
        slipstream.configure(url)
        options: Any
        for options in ({"transport": make}, {"mounts": {"http://": make, "all://elsewhere": None}}):
            before = len(made)
            async with slipstream.async_http_client(base_url=f"{url}/v1", **options) as client:
                assert await by_httpx(client) == "echo: hello"
                assert await asyncio.to_thread(lambda: asyncio.run(by_httpx(client))) == "echo: hello"
                assert await by_httpx(client) == "echo: hello"  # the other loop's end has closed nothing here
            assert len(made) == before + 3  # one is the client's own, for what knows of no loop


def test_a_transport_that_all_loops_would_share_is_refused() -> None:
    transport = httpx.AsyncHTTPTransport()
    with pytest.raises(
        ValueError, match=r"^transport: expected a function that makes a transport.* AsyncHTTPTransport$"
    ):
        slipstream.async_http_client(transport=transport)
    with pytest.raises(ValueError, match=r"^mounts\['http://'\]: expected a function"):
        slipstream.async_http_client(mounts={"http://": transport})


async def test_hooks_and_cookies_are_those_of_the_client_that_was_made() -> None:
    async def show(request: Request) -> Response:
        response = JSONResponse({"cookies": request.cookies, "task": request.headers.get("x-slipstream-task-id")})
        response.set_cookie("seen", "yes")
        return response

    seen: list[httpx.Request] = []

    async def hook(request: httpx.Request) -> None:
        seen.append(request)

    async with serving(Starlette(routes=[Route("/v1/show", show)])) as url:
        slipstream.configure(url)
        async with slipstream.async_http_client(event_hooks={"request": [hook]}) as client:
            answers = []
            with entered(Context(task_id="order-17")):
                for _ in range(2):
                    answers.append(json.loads((await client.get(f"{url}/v1/show")).content))
    assert answers == [{"cookies": {}, "task": "order-17"}, {"cookies": {"seen": "yes"}, "task": "order-17"}]
    assert len(seen) == 2
