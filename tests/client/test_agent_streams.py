"""Agents that return a stream that has yet to run: they have not ended, so no part of their runs is trained on."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import anthropic
import httpx
import httpx2
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


class Lazy:
    """As Django's `SimpleLazyObject`, and werkzeug's `LocalProxy`: what looks at it evaluates it."""

    __slots__ = ()

    def _evaluate(self) -> Any:
        raise RuntimeError("You cannot call this from an async context")

    __class__ = property(_evaluate)  # type: ignore[assignment]
    __dict__ = property(_evaluate)  # type: ignore[assignment]


@pytest.mark.parametrize("holding", [lambda lazy: lazy, lambda lazy: {"answer": "42", "user": lazy}, Holding])
def test_a_lazy_object_that_an_agent_returns_is_not_evaluated_to_look_for_streams(
    runner: slipstream.TrainingRunner, ran: list[Any], holding: Callable[[Any], Any]
) -> None:
    result = holding(Lazy())
    assert runner.agent(lambda question: result)("hello") is result
    assert len(ran) == 1


def test_a_result_that_cannot_be_looked_at_is_the_callers_all_the_same(
    runner: slipstream.TrainingRunner, ran: list[Any]
) -> None:
    class Proxy(type):
        def __dir__(cls) -> Any:
            raise RuntimeError("no names")

    class Result(metaclass=Proxy):
        is_complete = False

    result = Result()
    assert runner.agent(lambda question: result)("hello") is result
    assert (ran, runner.stats.dropped) == ([], {"internal": 1})


SAID: Any = [{"role": "user", "content": "hello"}]


def answering(library: Any) -> openai.OpenAI:
    """A client, over httpx or httpx2, whose calls are answered with a stream."""
    chunk = '{"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}'
    body = f"data: {chunk}\n\ndata: [DONE]\n\n".encode()

    def answer(_: Any) -> Any:
        return library.Response(200, headers={"content-type": "text/event-stream"}, content=iter([body]))

    client: Any = library.Client(transport=library.MockTransport(answer))
    return openai.OpenAI(api_key="-", base_url="http://127.0.0.1:9/v1", http_client=client)


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_sdks_streams_have_not_ended_until_they_are_read(library: ModuleType) -> None:
    chats = answering(library).chat.completions
    stream = chats.create(model="m", messages=SAID, stream=True)
    raw = chats.with_raw_response.create(model="m", messages=SAID, stream=True)
    holders = ([stream], (stream, "metadata"), {"answer": stream}, Holding(stream), raw, [raw])
    assert [each for each in holders if not has_yet_to_run(each)] == []
    assert len(list(stream)) == 1
    assert len(list(raw.parse())) == 1
    assert [each for each in holders if has_yet_to_run(each)] == []


def test_what_is_still_to_be_read_has_not_ended() -> None:
    client = openai.OpenAI(api_key="-", base_url="http://127.0.0.1:9/v1")
    asynchronous = openai.AsyncOpenAI(api_key="-", base_url="http://127.0.0.1:9/v1")
    claude = anthropic.Anthropic(api_key="-").messages
    awaited_later = asynchronous.chat.completions.with_streaming_response.create(model="m", messages=SAID)
    awaited_later._api_request.close()  # type: ignore[attr-defined]
    streams = (
        client.chat.completions.with_streaming_response.create(model="m", messages=SAID),
        awaited_later,
        claude.with_streaming_response.create(model="m", max_tokens=1, messages=SAID),
        client.chat.completions.stream(model="m", messages=SAID),
        claude.stream(model="m", max_tokens=1, messages=SAID),
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
