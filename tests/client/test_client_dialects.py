"""Agents on `/v1/responses` and `/v1/messages`, with the SDKs of their vendors: marks, feedback and replays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import anthropic
import openai
import pytest
from dialects_production import DialectsProduction
from loops import Loop, RunLoop
from pydantic import BaseModel
from replaying import CallsTools, finish, open_runs, replay
from scripted import ScriptedExplorer
from serving import serving, until

import slipstream_client as slipstream

ALWAYS = slipstream.SamplingRate(1)
LOOK_UP: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]}

RunDialects = Callable[..., AbstractAsyncContextManager[tuple[Loop, DialectsProduction]]]


class Said(BaseModel):
    said: str


@pytest.fixture
def run_dialects(run_loop: RunLoop) -> RunDialects:
    """The whole loop with a production model that speaks both dialects; only what a runner replays is trained on."""

    @asynccontextmanager
    async def start(explorer: ScriptedExplorer | None = None) -> AsyncIterator[tuple[Loop, DialectsProduction]]:
        production = DialectsProduction()
        async with (
            serving(production.app()) as url,
            run_loop(explorer, production={"base_url": f"{url}/v1"}, selection={"sampling": {"rate": 0.0}}) as loop,
        ):
            slipstream.configure(loop.url)
            yield loop, production

    return start


def respond(client: openai.OpenAI, text: str) -> tuple[str, str]:
    answer = client.responses.create(model="prod", input=text)
    return answer.id, answer.output_text


def respond_streamed(client: openai.OpenAI, text: str) -> tuple[str, str]:
    with client.responses.stream(model="prod", input=text) as events:
        answer = events.get_final_response()
    return answer.id, answer.output_text


def respond_parsed(client: openai.OpenAI, text: str) -> tuple[str, str]:
    answer = client.responses.parse(model="prod", input=text, text_format=Said)
    assert answer.output_parsed is not None
    return answer.id, answer.output_parsed.said


def message(client: anthropic.Anthropic, text: str) -> tuple[str, str]:
    answer = client.messages.create(model="prod", max_tokens=9, messages=[{"role": "user", "content": text}])
    return answer.id, answer.content[0].text  # type: ignore[union-attr]


def message_streamed(client: anthropic.Anthropic, text: str) -> tuple[str, str]:
    asked: Any = [{"role": "user", "content": text}]
    with client.messages.stream(model="prod", max_tokens=9, messages=asked) as events:
        answer = events.get_final_message()
    return answer.id, answer.content[0].text  # type: ignore[union-attr]


def message_parsed(client: anthropic.Anthropic, text: str) -> tuple[str, str]:
    asked: Any = [{"role": "user", "content": text}]
    answer = client.messages.parse(model="prod", max_tokens=9, messages=asked, output_format=Said)
    assert answer.parsed_output is not None
    return answer.id, answer.parsed_output.said


WAYS = [
    pytest.param("openai", "responses", respond, id="responses.create"),
    pytest.param("openai", "responses", respond_streamed, id="responses.stream"),
    pytest.param("openai", "responses", respond_parsed, id="responses.parse"),
    pytest.param("anthropic", "messages", message, id="messages.create"),
    pytest.param("anthropic", "messages", message_streamed, id="messages.stream"),
    pytest.param("anthropic", "messages", message_parsed, id="messages.parse"),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("sdk", "dialect", "ask"), WAYS)
async def test_a_call_carries_its_mark_and_feedback_names_its_answer(
    run_dialects: RunDialects, sdk: str, dialect: str, ask: Callable[..., tuple[str, str]]
) -> None:
    def program() -> tuple[str, str]:
        with (
            getattr(slipstream, sdk)(max_retries=0) as client,
            slipstream.mark("good", task_id="order-17", session_id="customer-7", reference="42"),
        ):
            return ask(client, "hello")

    async with run_dialects() as (loop, _):
        msg_id, text = await asyncio.to_thread(program)
        slipstream.feedback(msg_id=msg_id, thumbs="up")
        slipstream.mark_answer("liked", msg_id=msg_id)
        assert await asyncio.to_thread(slipstream.flush)

        async def rated() -> Any:
            task = await loop.task("order-17")
            matched = (await loop.status())["feedback"].get("matched")
            return task if task and matched == 1 and "liked" in task["labels"] else None

        task = await until(rated)
        call = (await loop.client.get(f"/calls/{msg_id}")).json()

    assert text.endswith("hello")
    assert (task["session_id"], task["labels"], task["metadata"]) == (
        "customer-7",
        ["good", "liked"],
        {"reference": "42"},
    )
    assert call["dialect"] == dialect


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("sdk", "dialect", "ask"), WAYS)
async def test_in_a_replay_the_policy_answers_and_feedback_on_that_answer_is_the_runs_reward(
    run_dialects: RunDialects, sdk: str, dialect: str, ask: Callable[..., tuple[str, str]]
) -> None:
    def program(group: dict[str, Any], run: dict[str, Any]) -> tuple[str, str]:
        with (
            getattr(slipstream, sdk)(max_retries=0) as client,
            slipstream.replay(group["task_id"], run["run_id"], run["base_url"]),
        ):
            return ask(client, "hello")

    async with run_dialects(ScriptedExplorer(answer='{{"said": "policy {n}"}}')) as (loop, production):
        group = await open_runs(loop, runs=1)
        msg_id, text = await asyncio.to_thread(program, group, group["runs"][0])
        assert (await finish(loop))["msg_ids"] == [msg_id]
        slipstream.feedback(msg_id=msg_id, reward=0.75)
        assert await asyncio.to_thread(slipstream.flush)

        async def rewarded() -> bool:
            return [run["reward"] for run in (await replay(loop))["runs"]] == [0.75]

        await until(rewarded)

    assert "policy 1" in text
    assert production.asked == []


class _Mails:
    """A tool with side effects, which the policy calls as production did not."""

    def __init__(self) -> None:
        self.sent: list[int] = []

        @slipstream.tool(side_effects=True)
        def look_up(q: int) -> str:
            self.sent.append(q)
            return "sent"

        self.send = look_up


def agents_sdk(client: openai.AsyncOpenAI, mails: _Mails, *, stream: bool = False) -> Callable[[str], Any]:
    """An agent of the OpenAI Agents SDK, which speaks `/v1/responses` unless it is told otherwise."""
    import agents

    agents.set_default_openai_client(client, use_for_tracing=False)
    agents.set_tracing_disabled(True)
    tools: list[Any] = [agents.function_tool(mails.send)]
    support = agents.Agent(name="support", instructions="Be short.", model="prod", tools=tools)

    async def agent(question: str) -> str:
        if not stream:
            return str((await agents.Runner.run(support, question)).final_output)
        result = agents.Runner.run_streamed(support, question)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    return agent


def tools_of_messages(client: anthropic.AsyncAnthropic, mails: _Mails) -> Callable[[str], Any]:
    """An agent on Anthropic's SDK."""
    tools: Any = [{"name": "look_up", "description": "Look it up.", "input_schema": LOOK_UP}]

    async def agent(question: str) -> str:
        said: list[Any] = [{"role": "user", "content": question}]
        while True:
            async with client.messages.stream(
                model="prod", max_tokens=64, system="Be short.", messages=said, tools=tools
            ) as events:
                answer = await events.get_final_message()
            uses = [block for block in answer.content if block.type == "tool_use"]
            if not uses:
                return "".join(block.text for block in answer.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": use.id, "content": mails.send(**use.input)} for use in uses
            ]
            said += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]

    return agent


def raw_http(client: Any, mails: _Mails) -> Callable[[str], Any]:
    """An agent without an SDK; as the Vercel AI SDK does, it refers to the items of earlier answers."""
    tools = [{"type": "function", "name": "look_up", "description": "Look it up.", "parameters": LOOK_UP}]

    async def agent(question: str) -> str:
        said: list[Any] = [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": [{"type": "input_text", "text": question}]},
        ]
        while True:
            body = {"model": "prod", "input": said, "tools": tools, "tool_choice": "auto", "stream": True}
            async with client.stream("POST", "/responses", json=body) as response:
                response.raise_for_status()
                events = [json.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: {")]
            output = [event["item"] for event in events if event["type"] == "response.output_item.done"]
            calls = [item for item in output if item["type"] == "function_call"]
            if not calls:
                return str(output[-1]["content"][0]["text"])
            said += [{"type": "item_reference", "id": item["id"]} for item in output]
            said += [
                {
                    "type": "function_call_output",
                    "call_id": call["call_id"],
                    "output": mails.send(**json.loads(call["arguments"])),
                }
                for call in calls
            ]

    return agent


AGENTS = [
    pytest.param(slipstream.async_openai, agents_sdk, id="Agents SDK"),
    pytest.param(slipstream.async_openai, partial(agents_sdk, stream=True), id="Agents SDK, streamed"),
    pytest.param(slipstream.async_anthropic, tools_of_messages, id="anthropic"),
    pytest.param(
        lambda: slipstream.async_http_client(base_url=slipstream.settings().base_url), raw_http, id="plain HTTP"
    ),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("connect", "build"), AGENTS)
async def test_a_runner_runs_the_agent_again_on_the_policy_in_its_own_dialect(
    run_dialects: RunDialects, connect: Callable[[], Any], build: Callable[..., Any]
) -> None:
    seen: list[slipstream.RunResult] = []

    def reward(run: slipstream.RunResult) -> float:
        seen.append(run)
        return 1.0 if run.output.startswith("policy says") else 0.0

    mails = _Mails()
    async with run_dialects(CallsTools()) as (loop, production):
        runner = slipstream.TrainingRunner(ALWAYS, reward, repeat_time=2)
        async with connect() as client, runner:
            agent = runner.agent(build(client, mails))
            with slipstream.mark("good", task_id="order-17", reference="42"):
                answer = await agent("use the tool")
        group = await replay(loop, "order-17")
        experiences = loop.explorer.trained

    assert answer.startswith("echo:"), "the user has production's answer"
    assert len(production.asked) == 2, "and the replays have asked production nothing"
    assert (runner.stats.finished, runner.stats.failed, runner.stats.commits) == (2, {}, 1)
    assert [run["reward"] for run in group["runs"]] == [1.0, 1.0]
    by_run = {run["run_id"]: run["msg_ids"] for run in group["runs"]}
    assert {run.run_id: list(run.msg_ids) for run in seen} == by_run
    assert sorted(one["msg_id"] for one in experiences) == sorted(name for ids in by_run.values() for name in ids)
    assert [len(ids) for ids in by_run.values()] == [2, 2]

    assert mails.sent == [0], "a write of the policy's is not carried out"
    assert [run.blocked for run in seen] == [("look_up",), ("look_up",)]
    roles = [[said["role"] for said in chat["messages"]] for chat in loop.explorer.chats]
    assert sorted(roles, key=len)[:2] == [[roles[0][0], "user"]] * 2
    assert sorted(roles, key=len)[2:] == [[roles[0][0], "user", "assistant", "tool"]] * 2
    assert roles[0][0] in ("system", "developer")


async def test_a_key_of_productions_is_not_asked_for_where_the_sidecar_has_it(
    run_dialects: RunDialects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_dialects():
        async with slipstream.async_anthropic() as client:
            asked: Any = [{"role": "user", "content": "hello"}]
            assert (await client.messages.create(model="prod", max_tokens=9, messages=asked)).id == "msg_0"
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-own")
        with slipstream.anthropic() as own:
            assert own.api_key == "sk-ant-own"
        with slipstream.anthropic(auth_token="token") as by_token:
            assert (by_token.api_key, by_token.auth_token) == (None, "token")


def test_an_empty_key_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `OPENAI_API_KEY=` in a compose file."""
    for key, options, sent in [
        ("", {}, "none"),
        ("", {"api_key": None}, "none"),
        ("", {"api_key": "sk-given"}, "sk-given"),
        ("sk-own", {"api_key": None}, "sk-own"),
        (None, {"api_key": ""}, "none"),
    ]:
        monkeypatch.delenv("OPENAI_API_KEY") if key is None else monkeypatch.setenv("OPENAI_API_KEY", key)
        given: dict[str, Any] = options
        with slipstream.openai(**given) as client:
            assert client.api_key == sent
        assert slipstream.async_openai(**given).api_key == sent
