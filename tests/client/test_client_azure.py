"""`AzureOpenAI` with our HTTP client, behind a sidecar whose production model is an endpoint of Azure's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from loops import Loop, RunLoop
from scripted import production_app
from serving import serving

import slipstream_client as slipstream

ROOT = "/openai/deployments/gpt-4o/"


@pytest.fixture
def asked() -> list[str]:
    """Paths at which production was asked."""
    return []


@pytest.fixture
async def azure_loop(run_loop: RunLoop, asked: list[str]) -> AsyncIterator[Loop]:
    app = production_app()

    async def azure(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            asked.append(scope["path"])
            scope = {**scope, "path": scope["path"].replace(ROOT, "/v1/")}
        await app(scope, receive, send)

    async with (
        serving(azure) as url,
        run_loop(production={"base_url": f"{url}/openai/v1"}, selection={"sampling": {"rate": 0.0}}) as loop,
    ):
        slipstream.configure(loop.url)
        yield loop


@asynccontextmanager
async def azure_client(loop: Loop) -> AsyncIterator[openai.AsyncAzureOpenAI]:
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=loop.url, api_key="k", api_version="2024-10-21", http_client=slipstream.async_http_client()
    ) as client:
        yield client


async def test_what_must_not_be_captured_is_not_and_marks_arrive(
    azure_loop: Loop, asked: list[str], stored: Any
) -> None:
    said: Any = [{"role": "user", "content": "hello"}]
    async with azure_client(azure_loop) as client:
        with slipstream.mark("good", task_id="order-17"):
            with slipstream.never():
                private = await client.chat.completions.create(model="gpt-4o", messages=said)
            public = await client.chat.completions.create(model="gpt-4o", messages=said)
    task = await stored(azure_loop, "order-17")
    assert task["labels"] == ["good"]
    assert [call["msg_id"] for call in task["calls"]] == [public.id]
    assert (await azure_loop.client.get(f"/calls/{private.id}")).status_code == 404
    assert asked == [f"{ROOT}chat/completions"] * 2


async def test_the_policy_answers_a_replay(azure_loop: Loop, asked: list[str]) -> None:
    runner = slipstream.TrainingRunner(slipstream.SamplingRate(1), lambda run: 1.0, repeat_time=2)
    async with azure_client(azure_loop) as client, runner:

        @runner.agent
        async def agent(question: str) -> str:
            said: Any = [{"role": "user", "content": question}]
            answer = await client.chat.completions.create(model="gpt-4o", messages=said)
            return str(answer.choices[0].message.content)

        assert await agent("hello") == "echo: hello"
    assert (runner.stats.finished, runner.stats.failed) == (2, {})
    assert len(azure_loop.explorer.trained) == 2
    assert asked == [f"{ROOT}chat/completions"], "the replays have asked production nothing"
