"""Agents that return a stream that has yet to run: they have not ended, so no part of their runs is trained on."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx
import openai
import pytest
from loops import RunLoop
from starlette.responses import Response, StreamingResponse

import slipstream_client as slipstream
from slipstream_client.training.streams import has_yet_to_run

NOT_SHADOWED: dict[str, Any] = {"selection": {"sampling": {"rate": 0.0}}}
"""Only what the runner replays is trained on."""

ALWAYS = slipstream.SamplingRate(1)

Ask = Callable[..., Awaitable[Any]]


def asking(client: openai.AsyncOpenAI) -> Ask:
    def ask(text: str, **fields: Any) -> Awaitable[Any]:
        said: Any = [{"role": "user", "content": text}]
        return client.chat.completions.create(model="prod", messages=said, **fields)

    return ask


async def planned_generator(ask: Ask, question: str) -> AsyncIterator[str]:
    plan = (await ask(question)).choices[0].message.content

    async def answer() -> AsyncIterator[str]:
        async for chunk in await ask(plan, stream=True):
            yield chunk.choices[0].delta.content or ""

    return answer()


async def planned_stream(ask: Ask, question: str) -> AsyncIterator[str]:
    plan = (await ask(question)).choices[0].message.content
    stream: AsyncIterator[str] = await ask(plan, stream=True)
    return stream


@pytest.mark.parametrize("agent", [planned_generator, planned_stream])
async def test_a_coroutine_that_returns_a_stream_is_not_run_again(run_loop: RunLoop, agent: Any) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 1.0, repeat_time=2)
        async with slipstream.async_openai() as client, runner:
            ask = asking(client)
            streamed = await runner.agent(agent, inputs=lambda *args: (args, {}))(ask, "hello")
            pieces = [piece async for piece in streamed]
    assert len(pieces) > 1, "the caller has the stream, whole"
    assert runner.stats.dropped == {"not_ended": 1}
    assert (runner.stats.finished, loop.explorer.chats) == (0, [])


async def test_a_plain_agent_that_returns_the_sdks_stream_is_not_run_again(run_loop: RunLoop) -> None:
    def program() -> list[Any]:
        with slipstream.openai() as client, runner:

            @runner.agent
            def agent(question: str) -> Any:
                said: Any = [{"role": "user", "content": question}]
                return client.chat.completions.create(model="prod", messages=said, stream=True)

            return list(agent("hello"))

    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 1.0, repeat_time=2)
        assert len(await asyncio.to_thread(program)) > 1
    assert runner.stats.dropped == {"not_ended": 1}
    assert (runner.stats.finished, loop.explorer.chats) == (0, [])


async def test_a_replay_that_returns_a_stream_is_dropped(run_loop: RunLoop) -> None:
    async with run_loop(**NOT_SHADOWED) as loop:
        slipstream.configure(loop.url)
        runner = slipstream.TrainingRunner(ALWAYS, lambda run: 1.0, repeat_time=2)
        async with slipstream.async_openai() as client, runner:
            ask = asking(client)

            @runner.agent
            async def agent(question: str) -> Any:
                return await planned_generator(ask, question) if slipstream.is_replay() else "from a cache"

            with slipstream.mark(task_id="order-17"):
                assert await agent("hello") == "from a cache"
        group = (await loop.client.get("/runs/order-17")).json()
    assert runner.stats.failed == {"not_ended": 2}
    assert (runner.stats.finished, loop.explorer.trained) == (0, [])
    assert [run["state"] for run in group["runs"]] == ["failed", "failed"]
    assert "stream" in group["runs"][0]["error"]


@dataclass
class Streaming:
    """As the OpenAI Agents SDK's `RunResultStreaming`: its calls are made while its events are read."""

    is_complete: bool = False

    async def stream_events(self) -> AsyncIterator[str]:
        yield "event"


@dataclass
class Holding:
    """As a chat engine's answer: the text comes from the generator that it holds."""

    tokens: Any
    source: str = "a page"


@dataclass
class Order:
    is_complete: bool = False


def _pieces() -> Iterator[str]:
    yield "piece"


def _read() -> Iterator[str]:
    pieces = _pieces()
    list(pieces)
    return pieces


class Elements:
    """May be read asynchronously, more than once."""

    def __aiter__(self) -> AsyncIterator[str]:
        raise AssertionError("no code of the object's own runs")


def test_what_is_still_to_be_read_has_not_ended() -> None:
    client = openai.OpenAI(api_key="-", base_url="http://127.0.0.1:9/v1")
    said: Any = [{"role": "user", "content": "hello"}]
    streams = (
        client.chat.completions.stream(model="m", messages=said),
        anthropic.Anthropic(api_key="-").messages.stream(model="m", max_tokens=1, messages=said),
        asynccontextmanager(Streaming.stream_events)(Streaming()),
        StreamingResponse(_pieces()),
        Streaming(),
        Holding(_pieces()),
        (_pieces(), "metadata"),
        {"answer": _pieces()},
        Elements(),
    )
    assert [stream for stream in streams if not has_yet_to_run(stream)] == []


def test_what_was_read_or_is_none_has_ended() -> None:
    over: tuple[Any, ...] = (
        "text", b"bytes", ["a"], {"a": "b"}, None, 5, Streaming(is_complete=True), Order(), Holding(_read()),
        Holding("text"), range(3), Response("text"), object(), Holding, httpx.Response(200, text="text"),
        io.BytesIO(b"text"), zipfile.ZipFile(io.BytesIO(), "w"),
    )  # fmt: skip
    assert [each for each in over if has_yet_to_run(each)] == []
