"""A server that answers `/v1/responses` and `/v1/chat/completions` with the same completions, one after another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from openai import AsyncOpenAI
from serving import serving

from slipstream.dialects.form import Held
from slipstream.dialects.responses.translator import ResponsesTranslator

RESPONSES = ResponsesTranslator()


class Policy:
    """Answers what it is asked; each answer is a message, in the chat form.

    Attributes:
        client: of the openai SDK.
        asked: the chat requests, of both routes.
    """

    client: AsyncOpenAI

    def __init__(self, messages: Iterable[dict[str, Any]], **choice: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self._messages = iter(messages)
        self._choice = choice
        self._conversations: dict[str, Held] = {}

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Policy]:
        app = FastAPI()
        app.post("/v1/responses")(self._responses)
        app.post("/v1/chat/completions")(self._chat)
        async with serving(app) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
            self.client = client
            yield self

    async def _chat(self, request: dict[str, Any]) -> Any:
        return self._completion(request)

    async def _responses(self, request: dict[str, Any]) -> Any:
        earlier = self._conversations.get(RESPONSES.history(request) or "")
        asked = RESPONSES.chat_request(request, earlier)
        completion = self._completion(asked)
        said = [*asked["messages"], completion["choices"][0]["message"]]
        self._conversations[completion["id"]] = Held(said[bool(request.get("instructions")) :])
        answer = RESPONSES.answer(completion, request)
        if request.get("stream"):
            return StreamingResponse(RESPONSES.stream(answer), media_type="text/event-stream")
        return answer

    def _completion(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        message = {"role": "assistant", "content": None} | next(self._messages)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish} | self._choice
        return {
            "id": f"chatcmpl-{len(self.asked)}",
            "object": "chat.completion",
            "created": 1_750_000_000,
            "model": "policy",
            "choices": [choice],
            "usage": {
                "prompt_tokens": 30,
                "completion_tokens": 12,
                "total_tokens": 42,
                "prompt_tokens_details": {"cached_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        }


def calls(*named: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Tool calls in the chat form, of (id, function, arguments)."""
    return [
        {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}
        for name, function, arguments in named
    ]
