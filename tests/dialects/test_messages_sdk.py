"""Anthropic's own client against a server that answers with what the policy said, translated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from captured_chats import assistant, completion, tool_call
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from serving import serving

from slipstream.dialects.form import Translator, Unsayable
from slipstream.dialects.messages.translator import MessagesTranslator

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

MESSAGES: Translator = MessagesTranslator()
WEATHER = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Policy:
    """A server for one conversation: answers with the completions that it is given, and remembers what it is asked.

    Args:
        completions: the policy's, in order.
    """

    def __init__(self, *completions: dict[str, Any]) -> None:
        self._completions = list(completions)
        self.asked: list[dict[str, Any]] = []

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncAnthropic]:
        from anthropic import AsyncAnthropic

        app = FastAPI()
        app.post("/v1/messages", response_model=None)(self._answer)
        async with serving(app) as url, AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
            yield client

    async def _answer(self, request: Request) -> Response:
        asked = await request.json()
        try:
            self.asked.append(MESSAGES.chat_request(asked))
        except Unsayable as error:
            return JSONResponse(MESSAGES.error(400, str(error), error.problem, error.at), 400)
        answer = MESSAGES.answer(self._completions.pop(0), asked)
        if asked.get("stream"):
            return StreamingResponse(MESSAGES.stream(answer), media_type="text/event-stream")
        return JSONResponse(answer)


TEXT = completion(assistant("Grüße 🙂"))
CALL = completion(
    assistant("I look.", tool_call("call_a", "weather", city="Kiel"), tool_call("call_b", "weather", city="Bonn"))
)
THOUGHT = completion(assistant("4") | {"reasoning_content": "2 and 2"})


async def test_an_answer_and_the_same_streamed() -> None:
    async with Policy(TEXT, TEXT).client() as client:
        asked: Any = {"model": "claude", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
        answer = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            pieces = [piece async for piece in stream.text_stream]
            final = await stream.get_final_message()
    assert (answer.id, answer.stop_reason, answer.usage.input_tokens) == ("chatcmpl-1", "end_turn", 9)
    assert answer.content[0].to_dict() == {"type": "text", "text": "Grüße 🙂"}
    assert "".join(pieces) == "Grüße 🙂"
    assert final.to_dict(exclude_none=True) == answer.to_dict(exclude_none=True)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_with_tools(streamed: bool) -> None:
    policy = Policy(CALL, TEXT)
    asked: Any = {"model": "claude", "max_tokens": 64, "tools": [WEATHER], "system": "Be brief."}
    messages: list[Any] = [{"role": "user", "content": "Is it warm?"}]
    async with policy.client() as client:

        async def answer() -> Any:
            if not streamed:
                return await client.messages.create(**asked, messages=messages)
            async with client.messages.stream(**asked, messages=messages) as stream:
                return await stream.get_final_message()

        first = await answer()
        assert first.stop_reason == "tool_use"
        uses = [block for block in first.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": use.input["city"]} for use in uses]
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        last = await answer()
    assert last.content[0].text == "Grüße 🙂"
    said = CALL["choices"][0]["message"]
    assert policy.asked[1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Is it warm?"},
        {"role": "assistant", "content": "I look.", "tool_calls": said["tool_calls"]},
        {"role": "tool", "tool_call_id": "call_a", "content": "Kiel"},
        {"role": "tool", "tool_call_id": "call_b", "content": "Bonn"},
    ]


@pytest.mark.parametrize("streamed", [False, True])
async def test_thoughts(streamed: bool) -> None:
    asked: Any = {"model": "claude", "max_tokens": 2048, "messages": [{"role": "user", "content": "2 + 2?"}]}
    asked["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    async with Policy(THOUGHT).client() as client:
        if streamed:
            async with client.messages.stream(**asked) as stream:
                answer: Any = await stream.get_final_message()
        else:
            answer = await client.messages.create(**asked)
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[0].thinking == "2 and 2"


async def test_a_refusal_is_an_error_of_the_sdk_with_its_reason() -> None:
    import anthropic

    image: Any = {"type": "image", "source": {"type": "url", "url": "https://a.example/a.png"}}
    async with Policy().client() as client:
        with pytest.raises(anthropic.BadRequestError) as refused:
            await client.messages.create(model="claude", max_tokens=9, messages=[{"role": "user", "content": [image]}])
    assert refused.value.type == "invalid_request_error"
    assert refused.value.error_code == "media"
    assert "messages[0].content[0]" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (410, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_the_type_of_an_error(status: int, kind: str) -> None:
    error = {"type": kind, "message": "no", "code": None, "param": None}
    assert MESSAGES.error(status, "no", None, None) == {"type": "error", "error": error}
