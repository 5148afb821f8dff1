"""The gateway, by what an openai SDK behind it and an Explorer before it see."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest
from scripted import ScriptedExplorer
from serving import serving, until

from slipstream_client.tuner.calls import Calls, RunFailed
from slipstream_client.tuner.gateway import Gateway, Upstream

HELLO: Any = [{"role": "user", "content": "Hello"}]


@dataclass
class Run:
    calls: Calls
    client: openai.AsyncOpenAI

    async def ask(self, **fields: Any) -> Any:
        return await self.client.chat.completions.create(model="any", messages=HELLO, **fields)


@asynccontextmanager
async def run_on(explorer: ScriptedExplorer, timeout: float = 10) -> AsyncIterator[Run]:
    """One run whose calls go through the gateway to the Explorer."""
    calls = Calls()
    async with serving(explorer.app()) as url:
        with Gateway(timeout) as gateway, gateway.route(Upstream(f"{url}/v1", "policy"), calls) as base_url:
            async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
                yield Run(calls, client)


async def test_answers_are_put_down_in_the_order_in_which_their_calls_began() -> None:
    explorer = ScriptedExplorer()
    explorer.hold.clear()
    async with run_on(explorer) as run:
        asked = []
        for number in range(4):  # answered at once, in whatever order
            asked.append(asyncio.create_task(run.ask()))
            await until(lambda: len(explorer.chats) == number + 1)  # noqa: B023 - called here
        explorer.hold.set()
        answers = await asyncio.gather(*asked)
        assert run.calls.close() == [answer.id for answer in answers]


async def test_a_stream_comes_as_it_is_sent() -> None:
    explorer = ScriptedExplorer(answer="one\u2028two three")  # a line's end for some, none for server-sent events
    explorer.pace.clear()
    async with run_on(explorer) as run:
        stream = await run.ask(stream=True)
        first = await anext(stream)  # while the rest is held back
        with pytest.raises(RunFailed, match="call 1 of 1: it has not ended"):
            Calls.close(run.calls)
        explorer.pace.set()
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert first.choices[0].delta.role == "assistant"
    assert text == "one\u2028twothree"


async def test_a_stream_that_is_cut_fails_the_run_and_its_reader_is_told() -> None:
    explorer = ScriptedExplorer()
    explorer.cut_after = 2
    async with run_on(explorer) as run:
        stream = await run.ask(stream=True)
        with pytest.raises(openai.APIConnectionError):
            [chunk async for chunk in stream]
        with pytest.raises(RunFailed, match="call 1 of 1: the model could not be asked"):
            run.calls.close()


async def test_windows_which_has_no_msg_dontwait_gets_answers_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "MSG_DONTWAIT")
    async with run_on(ScriptedExplorer()) as run:
        answer = await run.ask()
        async for _ in await run.ask(stream=True):
            pass
        assert run.calls.close()[0] == answer.id


async def test_an_answer_that_nobody_waits_for_fails_the_run() -> None:
    explorer = ScriptedExplorer()
    explorer.hold.clear()
    async with run_on(explorer) as run:
        with pytest.raises(openai.APITimeoutError):
            await run.client.with_options(max_retries=0, timeout=0.2).chat.completions.create(
                model="any", messages=HELLO
            )
        explorer.hold.set()
        await until(lambda: explorer.total == 1)
        with pytest.raises(RunFailed, match=r"call 1 of 1: (whoever asked did not wait|it has not ended)"):
            run.calls.close()


@pytest.mark.slow
async def test_a_busy_engine_is_waited_for() -> None:
    explorer = ScriptedExplorer()
    explorer.faults["/v1/chat/completions"] = [500, 429, 503]
    async with run_on(explorer) as run:
        answer = await run.ask()
        assert len(explorer.chats) == 4
        assert run.calls.close() == [answer.id]


async def test_a_call_that_is_refused_fails_the_run_and_is_not_sent_again() -> None:
    explorer = ScriptedExplorer()
    explorer.faults["/v1/chat/completions"] = [400]
    async with run_on(explorer) as run:
        with pytest.raises(openai.BadRequestError, match="scripted fault"):
            await run.ask()
        await run.ask()
        with pytest.raises(RunFailed, match=r"call 1 of 2: status 400: .*scripted fault"):
            run.calls.close()


async def test_an_engine_that_stays_away_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream_client.tuner.gateway._RETRY_FOR", 0.3)
    explorer = ScriptedExplorer()
    explorer.faults["/v1/chat/completions"] = [503] * 9
    async with run_on(explorer) as run:
        with pytest.raises(openai.InternalServerError):
            await run.ask()
        assert len(explorer.chats) == 2  # by the gateway, and not by the SDK again
    with Gateway(10) as gateway, gateway.route(Upstream("http://127.0.0.1:9/v1", "policy")) as base_url:
        answer = await asyncio.to_thread(httpx.post, f"{base_url}/chat/completions", json={"messages": HELLO})
    assert answer.status_code == 502
    assert "ConnectError" in answer.json()["error"]["message"]


async def test_a_run_that_is_over_asks_nothing_more() -> None:
    explorer = ScriptedExplorer()
    async with run_on(explorer) as run:
        await run.ask()
        run.calls.close()
        with pytest.raises(openai.APIStatusError) as caught:
            await run.ask()
    assert caught.value.status_code == 410
    assert len(explorer.chats) == 1


async def test_a_run_without_a_call_has_nothing_to_learn_from() -> None:
    with pytest.raises(RunFailed, match="it made no call"):
        Calls().close()


async def test_an_answer_that_was_aborted_is_none() -> None:
    explorer = ScriptedExplorer()
    async with run_on(explorer) as run:
        explorer._record = lambda answer: answer["choices"][0].update(finish_reason="abort")  # type: ignore[method-assign]
        await run.ask()
        with pytest.raises(RunFailed, match="the answer is not whole"):
            run.calls.close()


async def test_it_says_what_it_does_not_do() -> None:
    async with run_on(ScriptedExplorer()) as run:
        assert [model.id async for model in run.client.models.list()] == ["policy"]
        with pytest.raises(openai.NotFoundError, match="only chat completions"):
            await run.client.embeddings.create(model="any", input="text")
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{run.client.base_url}chat/completions", content=b"[1]")
        assert (answer.status_code, answer.json()["error"]["message"]) == (400, "body: expected a JSON object")
