"""Agents that speak `/v1/messages` and `/v1/responses`, with their vendors' SDKs: captured, grouped and run."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest
from dialect_agents import LOOK_UP, messages_agent, responses_agent
from dialects_production import DialectsProduction, Json
from loops import Loop, RunLoop
from serving import serving, until

RunDialects = Callable[..., AbstractAsyncContextManager[tuple[Loop, DialectsProduction]]]

FUNCTION = {"name": "look_up", "description": "Look it up.", "parameters": LOOK_UP}
PICTURE = base64.b64encode(bytes(range(256)) * 8).decode()


@pytest.fixture
def run_dialects(run_loop: RunLoop) -> RunDialects:
    """Start the whole loop with a production model that speaks the other dialects."""

    @asynccontextmanager
    async def start(**sections: Any) -> AsyncIterator[tuple[Loop, DialectsProduction]]:
        production = DialectsProduction()
        async with serving(production.app()) as url:
            capture = {"redact": [], **sections.pop("capture", {})}
            async with run_loop(production={"base_url": f"{url}/v1"}, capture=capture, **sections) as loop:
                yield loop, production

    return start


async def thread_agent(client: anthropic.AsyncAnthropic, question: str) -> list[str]:
    """The same as `messages_agent`, by the tool runner of Anthropic's SDK: the provider holds the conversation."""

    @anthropic.beta_async_tool(name="look_up", description="Look it up.", input_schema=LOOK_UP)
    async def look_up(q: int) -> str:
        return "42"

    asked: Json = {"model": "prod", "max_tokens": 64, "system": "Be short.", "tools": [look_up]}
    runner = client.beta.messages.tool_runner(messages=[{"role": "user", "content": question}], **asked)
    return [message.id async for message in runner]


def conversation(call_id: str) -> list[Json]:
    """The same conversation as an agent would write it for chat completions, up to the second call."""
    function = {"name": "look_up", "arguments": '{"q": 0}'}
    return [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "use the tool"},
        {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call_id, "content": "42"},
    ]


def same(messages: list[Json]) -> list[Json]:
    """Messages without what no prompt shows: fields that are empty, and blanks in the arguments."""
    plain = [{name: value for name, value in message.items() if value} for message in json.loads(json.dumps(messages))]
    for message in plain:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return plain


async def of_task(loop: Loop, ids: list[str]) -> list[Json]:
    """The calls with these answers, once all are stored."""

    async def stored() -> list[Json]:
        found = [await loop.client.get(f"/calls/{name}") for name in ids]
        return [call.json() for call in found] if all(call.status_code == 200 for call in found) else []

    calls: list[Json] = await until(stored)
    return calls


AGENTS = [
    pytest.param("messages", {"stream": False}, id="messages"),
    pytest.param("messages", {"stream": True}, id="messages streamed"),
    pytest.param("thread", {}, id="messages, history held"),
    pytest.param("responses", {"stream": False}, id="responses"),
    pytest.param("responses", {"stream": True}, id="responses streamed"),
    pytest.param("responses", {"stream": False, "held": True}, id="responses, history held"),
    pytest.param("responses", {"stream": True, "held": True}, id="responses, history held, streamed"),
    pytest.param("responses", {"stream": False, "referred": True}, id="responses, items referred to"),
]


async def run_agent(dialect: str, url: str, **options: Any) -> list[str]:
    """The ids of the answers to one request of a user, which takes two calls."""
    about: Any = {"api_key": "production's key", "max_retries": 0}
    if dialect == "responses":
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", **about) as client:
            return (await responses_agent(client, "use the tool", **options)).ids
    async with anthropic.AsyncAnthropic(base_url=url, **about) as other:
        if dialect == "thread":
            return await thread_agent(other, "use the tool")
        return (await messages_agent(other, "use the tool", **options)).ids


@pytest.mark.sampled
@pytest.mark.parametrize(("dialect", "options"), AGENTS)
async def test_its_calls_are_one_task_and_the_policy_is_asked_the_chat_of_the_same_conversation(
    run_dialects: RunDialects, dialect: str, options: Json
) -> None:
    async with run_dialects(runs={"concurrency": 1}) as (loop, production):
        ids = await run_agent(dialect, loop.url, **options)
        calls = await of_task(loop, ids)
        await until(lambda: loop.ready(2))

        assert {call["dialect"] for call in calls} == {"messages" if dialect == "thread" else dialect}
        assert [call["problem"] for call in calls] == [None, None]
        assert len({call["task_id"] for call in calls}) == len({call["session_id"] for call in calls}) == 1
        assert [call["position"] for call in calls] == [0, 1]
        # as it came, beside the chat form
        assert [call["original"]["request"] for call in calls] == production.asked
        assert [call["original"]["answer"]["id"] for call in calls] == ids

        call_id = calls[0]["answer"]["choices"][0]["message"]["tool_calls"][0]["id"]
        first, second = loop.explorer.chats
        assert same(first["messages"]) == same(conversation(call_id)[:2])
        assert same(second["messages"]) == same(conversation(call_id))
        for asked in (first, second):
            function = asked["tools"][0]["function"]
            assert function == function | FUNCTION
        assert calls[1]["answer"]["choices"][0]["message"]["content"] == "echo: 42"


@pytest.mark.parametrize("dialect", ["messages", "responses"])
async def test_a_picture_is_kept_as_a_reference_and_the_policy_is_not_asked(
    run_dialects: RunDialects, dialect: str
) -> None:
    async with run_dialects() as (loop, production):
        if dialect == "messages":
            source: Any = {"type": "base64", "media_type": "image/png", "data": PICTURE}
            content: Any = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
            async with anthropic.AsyncAnthropic(base_url=loop.url, api_key="k") as client:
                asked: Any = [{"role": "user", "content": content}]
                name = (await client.messages.create(model="prod", max_tokens=9, messages=asked)).id
        else:
            url = f"data:image/png;base64,{PICTURE}"
            content = [{"type": "input_text", "text": "what is it?"}, {"type": "input_image", "image_url": url}]
            async with openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k") as own:
                asked = [{"role": "user", "content": content}]
                name = (await own.responses.create(model="prod", input=asked)).id
        assert PICTURE in json.dumps(production.asked)
        [call] = await of_task(loop, [name])
        assert call["problem"] == "media"
        assert PICTURE not in json.dumps(call)
        assert "sha256=" in json.dumps(call["original"]["request"])
        task = await until(lambda: loop.task(call["task_id"]))
        assert (task["selected"], task["reason"], task["groups"]) == (False, "ineligible:media", [])


async def test_an_item_of_a_session_that_was_deleted_does_not_come_back(run_dialects: RunDialects) -> None:
    async with run_dialects() as (loop, _), openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        answers = []
        for session in ("gone", "there"):
            header = {"x-slipstream-session-id": session}
            answers.append(await client.responses.create(model="prod", input=f"I am {session}", extra_headers=header))
        await of_task(loop, [answer.id for answer in answers])
        deleted = await loop.client.delete("/data", params={"session_id": "gone"})
        assert deleted.status_code == 200
        for answer, problem in zip(answers, ("history_unseen", None), strict=True):
            referring: Any = [
                {"type": "item_reference", "id": answer.output[0].id},
                {"role": "user", "content": "and?"},
            ]
            after = await client.responses.create(model="prod", input=referring)
            [call] = await of_task(loop, [after.id])
            assert call["problem"] == problem
            assert ("echo: I am" in json.dumps(call["request"])) is (problem is None)


@pytest.mark.slow
async def test_a_history_that_was_not_seen_is_stored_and_not_run(run_dialects: RunDialects) -> None:
    async with run_dialects() as (loop, _), openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        answer = await client.responses.create(model="prod", input="and now?", previous_response_id="resp_of_before")
        [call] = await of_task(loop, [answer.id])
        assert call["problem"] == "history_unseen"
        after = await client.responses.create(model="prod", input="more?", previous_response_id=answer.id)
        [next_call] = await of_task(loop, [after.id])
        assert (next_call["problem"], next_call["session_id"]) == ("history_unseen", call["session_id"])
        task = await until(lambda: loop.task(next_call["task_id"]))
        assert task["reason"] == "ineligible:history_unseen"
        assert loop.explorer.chats == []


@pytest.mark.slow
async def test_a_conversation_with_an_id_is_one_session_and_is_not_run(run_dialects: RunDialects) -> None:
    """Nobody can tell here what was in it before."""
    told: Json = {"model": "prod", "conversation": "conv_1"}
    tools: Any = [{"type": "function", "name": "look_up", "parameters": LOOK_UP}]
    async with run_dialects() as (loop, _), openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
        first = await client.responses.create(input="use the tool", tools=tools, **told)
        await of_task(loop, [first.id])
        result: Any = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "42"}
        second = await client.responses.create(input=[result], tools=tools, **told)
        third = await client.responses.create(input="and now?", **told | {"conversation": {"id": "conv_1"}})
        calls = await of_task(loop, [first.id, second.id, third.id])
        assert {call["session_id"] for call in calls} == {"conv_1"}
        tasks = [call["task_id"] for call in calls]
        assert tasks[0] == tasks[1] != tasks[2]
        assert {call["problem"] for call in calls} == {"history_unseen"}
        roles = [message["role"] for message in calls[2]["request"]["messages"]]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert loop.explorer.chats == []


@pytest.mark.slow
async def test_a_history_that_the_provider_holds_is_found_again_after_a_restart(run_dialects: RunDialects) -> None:
    async with (
        run_dialects() as (loop, production),
        openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k") as client,
    ):
        first = await client.responses.create(model="prod", input="I am Ann", instructions="Be short.")
        await of_task(loop, [first.id])
    async with run_dialects() as (loop, after):
        after._numbers = production._numbers
        async with openai.AsyncOpenAI(base_url=f"{loop.url}/v1", api_key="k") as client:
            second = await client.responses.create(
                model="prod", input="who am I?", previous_response_id=first.id, instructions="Be kind."
            )
        calls = await of_task(loop, [first.id, second.id])
        assert calls[0]["session_id"] == calls[1]["session_id"]
        assert calls[0]["task_id"] != calls[1]["task_id"]
        await until(lambda: len(loop.explorer.chats) >= 1)
        assert [(message["role"], message["content"]) for message in calls[1]["request"]["messages"]] == [
            ("system", "Be kind."),
            ("user", "I am Ann"),
            ("assistant", "echo: I am Ann"),
            ("user", "who am I?"),
        ]
