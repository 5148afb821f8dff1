"""Agents that are run again on the policy, and speak `/v1/messages` or `/v1/responses`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from careful_hook import REDACT
from dialect_agents import LOOK_UP, messages_agent, responses_agent
from loops import Loop, RunLoop
from on_disk import holds
from replaying import CallsTools, finish, open_runs, replay
from scripted import completion, tool_call
from serving import until

from slipstream.runs.replay_histories import ReplayHistories


def messages_client(loop: Loop, run: dict[str, Any]) -> anthropic.AsyncAnthropic:
    """Anthropic's client adds `/v1` to its base URL itself."""
    base_url = loop.url + run["base_url"].removesuffix("/v1")
    return anthropic.AsyncAnthropic(base_url=base_url, api_key="production's key", max_retries=0)


def responses_client(loop: Loop, run: dict[str, Any]) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=loop.url + run["base_url"], api_key="production's key", max_retries=0)


@pytest.mark.sampled
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("left_out", [None, "held", "referred"], ids=["messages", "responses", "items referred to"])
async def test_the_policy_answers_in_the_dialect_it_was_asked_in(
    run_loop: RunLoop, left_out: str | None, stream: bool
) -> None:
    async with run_loop(CallsTools()) as loop:
        group = await open_runs(loop, runs=1)
        [run] = group["runs"]
        if left_out is None:
            async with messages_client(loop, run) as client:
                ids, text = await messages_agent(client, "how much?", stream=stream)
        else:
            async with responses_client(loop, run) as other:
                ids, text = await responses_agent(other, "how much?", stream=stream, **{left_out: True})
        ended = await finish(loop, run_id=run["run_id"], reward=1.0)
        assert ended["msg_ids"] == ids
        assert text.startswith("policy says")
        assert [message["role"] for message in loop.explorer.chats[1]["messages"]][-3:] == ["user", "assistant", "tool"]
        assert all(not chat.get("stream") for chat in loop.explorer.chats)
        await until(lambda: loop.ready(2))
        await loop.commit()
        assert sorted(one["msg_id"] for one in loop.explorer.committed[0]) == sorted(ids)


async def test_what_the_policy_cannot_be_asked_is_told_by_field_and_fails_its_run(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, runs=2)
        async with responses_client(loop, group["runs"][0]) as client:
            with pytest.raises(openai.UnprocessableEntityError) as searched:
                await client.responses.create(model="prod", input="news?", tools=[{"type": "web_search"}])
        assert searched.value.param == "tools[0]"
        assert "provider_tool" in str(searched.value)
        source = {"type": "url", "url": "https://example.com/a.png"}
        shows: Any = [{"role": "user", "content": [{"type": "image", "source": source}]}]
        async with messages_client(loop, group["runs"][1]) as other:
            with pytest.raises(anthropic.UnprocessableEntityError) as shown:
                await other.messages.create(model="prod", max_tokens=9, messages=shows)
        body: Any = shown.value.body
        assert body["type"] == "error"
        assert "messages[0].content[0]" in body["error"]["message"]
        assert {run["state"] for run in (await replay(loop))["runs"]} == {"failed"}
        assert loop.explorer.chats == []


MEDIA: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    {"type": "file", "file": {"file_id": "file-1"}},
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", MEDIA, ids=lambda part: part["type"])
async def test_a_chat_with_media_is_refused_in_the_words_of_the_other_dialects(
    run_loop: RunLoop, part: dict[str, Any]
) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, runs=2)
        async with responses_client(loop, group["runs"][0]) as client:
            messages: Any = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, part]}]
            with pytest.raises(openai.UnprocessableEntityError) as chat:
                await client.chat.completions.create(model="prod", messages=messages)
        async with responses_client(loop, group["runs"][1]) as client:
            image = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}
            asked: Any = [{"role": "user", "content": [{"type": "input_text", "text": "what is it?"}, image]}]
            with pytest.raises(openai.UnprocessableEntityError) as responses:
                await client.responses.create(model="prod", input=asked)
        assert (chat.value.param, chat.value.code) == ("messages[0].content[1]", "media")
        assert chat.value.code == responses.value.code
        assert str(chat.value).replace("messages[0]", "input[0]") == str(responses.value)
        assert {run["state"] for run in (await replay(loop))["runs"]} == {"failed"}
        assert loop.explorer.chats == []


async def test_a_chat_with_parts_of_text_is_asked(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        [run] = (await open_runs(loop))["runs"]
        async with responses_client(loop, run) as client:
            messages: Any = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
            await client.chat.completions.create(model="prod", messages=messages)
        assert loop.explorer.chats[0]["messages"] == messages


@anthropic.beta_async_tool(name="look_up", description="Look it up.", input_schema=LOOK_UP)
async def look_up(q: int) -> str:
    return "42"


THREAD: dict[str, Any] = {"model": "prod", "max_tokens": 64, "system": "Be short.", "tools": [look_up]}


@pytest.mark.slow
async def test_a_thread_that_is_held_for_the_agent_goes_on_with_its_instructions_and_tools(run_loop: RunLoop) -> None:
    async with run_loop(CallsTools()) as loop:
        group = await open_runs(loop, runs=1)
        [run] = group["runs"]
        async with messages_client(loop, run) as client:
            runner = client.beta.messages.tool_runner(messages=[{"role": "user", "content": "how much?"}], **THREAD)
            ids = [message.id async for message in runner]
        assert (await finish(loop, run_id=run["run_id"], reward=1.0))["msg_ids"] == ids
        first, second = loop.explorer.chats
        assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
        assert second["messages"][:2] == first["messages"]
        assert second["tools"] == first["tools"]


async def test_a_thread_that_nobody_holds_is_sent_whole(run_loop: RunLoop) -> None:
    """Anthropic's SDK does so where it is told that the thread is not found."""
    async with (
        run_loop(CallsTools()) as loop,
        anthropic.AsyncAnthropic(base_url=f"{loop.url}/explorer", api_key="k") as client,
    ):
        runner = client.beta.messages.tool_runner(messages=[{"role": "user", "content": "how much?"}], **THREAD)
        answers = [message async for message in runner]
        assert [answer.stop_reason for answer in answers] == ["tool_use", "end_turn"]
        roles = [[message["role"] for message in chat["messages"]] for chat in loop.explorer.chats]
        assert roles == [["system", "user"], ["system", "user", "assistant", "tool"]]


SECRET = f"sk-{'a1B2' * 10}"


class Repeats(CallsTools):
    """A policy that says what its agent said, the first time with a call of a tool."""

    def reply(self, msg_id: str, body: dict[str, Any]) -> dict[str, Any]:
        said = body["messages"][-1]["content"]
        calls = [tool_call("look_up", {"q": said}, f"call-{msg_id}")] if said.startswith("my key") else []
        return completion(msg_id, f"you said: {said}", calls)


async def go_on(client: openai.AsyncOpenAI, how: str) -> None:
    """Two calls of an agent, the second of which goes on from the answer to the first."""
    asked: dict[str, Any] = {"model": "prod"}
    first = await client.responses.create(input=f"my key is {SECRET}", **asked)
    [call] = [item for item in first.output if item.type == "function_call"]
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "ok"}
    if how == "held":
        await client.responses.create(input=[result], previous_response_id=first.id, **asked)
    else:
        items: Any = [{"type": "item_reference", "id": item.id} for item in first.output]
        items = [{"role": "user", "content": f"my key is {SECRET}"}, *items, result]
        await client.responses.create(input=items, **asked)


@pytest.mark.parametrize("redact", [True, False])
@pytest.mark.parametrize("how", ["held", "referred"])
async def test_a_history_that_is_held_is_redacted_where_what_is_asked_is(
    run_loop: RunLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, redact: bool
) -> None:
    over: list[tuple[ReplayHistories, int]] = []
    forget = ReplayHistories.forget
    monkeypatch.setattr(ReplayHistories, "forget", lambda own, pk: (over.append((own, pk)), forget(own, pk)))
    async with run_loop(Repeats(), explorer={"redact": redact}) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with responses_client(loop, run) as client:
            await go_on(client, how)
        seen = "[redacted:api_key]" if redact else SECRET
        said = loop.explorer.chats[1]["messages"]
        assert (said[0]["content"], said[1]["content"]) == (f"my key is {seen}", f"you said: my key is {seen}")
        assert json.loads(said[1]["tool_calls"][0]["function"]["arguments"]) == {"q": f"my key is {seen}"}
        await finish(loop, reward=1.0)
        [(histories, _)] = over
        assert histories._calls == {}
        assert not holds(tmp_path, SECRET), "what is stored is redacted either way"


async def test_a_history_of_which_only_the_redacted_form_is_left_is_not_asked(
    run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart, or behind another sidecar."""
    monkeypatch.setattr(ReplayHistories, "add", lambda *_: None)
    async with run_loop(Repeats(), explorer={"redact": False}) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with responses_client(loop, run) as client:
            with pytest.raises(openai.UnprocessableEntityError, match="history_unseen"):
                await go_on(client, "held")


async def test_a_history_that_a_hook_changed_nothing_of_is_asked(run_loop: RunLoop) -> None:
    async with run_loop(Repeats(), explorer={"redact": False}, capture=REDACT) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with responses_client(loop, run) as client:
            await go_on(client, "held")
        assert loop.explorer.chats[1]["messages"][0]["content"] == f"my key is {SECRET}"


async def test_a_history_that_has_the_mark_of_a_redaction_by_itself_is_asked(run_loop: RunLoop) -> None:
    async with run_loop(Repeats(), explorer={"redact": False}) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with responses_client(loop, run) as client:
            first = await client.responses.create(model="prod", input="what is [redacted:api_key]?")
            await client.responses.create(model="prod", input="and?", previous_response_id=first.id)
        assert loop.explorer.chats[1]["messages"][0]["content"] == "what is [redacted:api_key]?"


async def test_a_chat_is_not_kept_in_memory(run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Any] = []
    monkeypatch.setattr(ReplayHistories, "add", lambda _, *call: added.append(call))
    async with run_loop(Repeats(), explorer={"redact": False}) as loop:
        [run] = (await open_runs(loop))["runs"]
        async with responses_client(loop, run) as client:
            await client.chat.completions.create(model="prod", messages=[{"role": "user", "content": SECRET}])
            assert added == []
            await client.responses.create(model="prod", input=SECRET)
            assert len(added) == 1


async def test_an_answer_of_another_run_is_no_history(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        group = await open_runs(loop, runs=2)
        async with responses_client(loop, group["runs"][0]) as client:
            answer = await client.responses.create(model="prod", input="hello")
        async with responses_client(loop, group["runs"][1]) as other:
            with pytest.raises(openai.UnprocessableEntityError, match="history_unseen"):
                await other.responses.create(model="prod", input="and?", previous_response_id=answer.id)


@pytest.mark.parametrize("dialect", ["messages", "responses"])
async def test_the_facade_answers_in_each_dialect(run_loop: RunLoop, dialect: str) -> None:
    async with run_loop() as loop:
        base_url = f"{loop.url}/explorer"
        if dialect == "messages":
            async with anthropic.AsyncAnthropic(base_url=base_url, api_key="k") as client:
                said = await client.messages.create(
                    model="policy", max_tokens=9, messages=[{"role": "user", "content": "hello"}]
                )
            name = said.id
        else:
            async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key="k") as own:
                name = (await own.responses.create(model="policy", input="hello")).id
        body = {"msg_ids": [name], "reward": 1.0, "task_id": "t", "run_id": 0}
        told = await loop.client.post("/explorer/feedback", json=body)
        assert "accepted=1" in told.headers["x-slipstream-result"]
