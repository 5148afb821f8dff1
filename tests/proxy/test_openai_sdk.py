"""The official openai SDK works through the sidecar with only its base_url changed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from wire import Peer, Request, Sidecar, answer, sidecar, upstream

MESSAGES: Any = [{"role": "user", "content": "What is 2+2?"}]

TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":2,"b":2}'}}


def completion(**message: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
                "message": {"role": "assistant", "content": None, **message},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def event(**delta: Any) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


class Production:
    """A production model that answers what the request asks for, and fails as often as it is told to."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.failures: list[bytes] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            self.requests.append(request)
            if self.failures:
                await peer.send(self.failures.pop(0))
            else:
                await self.respond(peer, request)

    async def respond(self, peer: Peer, request: Request) -> None:
        path = request.line.split(b" ")[1]
        body = json.loads(request.body) if request.body.startswith(b"{") else {}
        if path == b"/v1/chat/completions" and body.get("stream"):
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            events = [event(role="assistant"), b": keep-alive\n\n"]
            if body.get("tools"):
                call = {**TOOL_CALL, "index": 0}
                events += [event(tool_calls=[call])]
            else:
                events += [event(content=text) for text in ("fo", "ur", " €")]
            stream = b"".join(events) + b"data: [DONE]\n\n"
            for start in range(0, len(stream), 11):
                piece = stream[start : start + 11]
                await peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await peer.send(b"0\r\n\r\n")
            return
        if path == b"/v1/chat/completions":
            if body.get("response_format"):
                result: Any = completion(content='{"value": 4}')
            elif body.get("tools"):
                result = completion(tool_calls=[TOOL_CALL])
            else:
                result = completion(content="four")
        elif path == b"/v1/models":
            result = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "o"}]}
        elif path == b"/v1/embeddings":
            result = {
                "object": "list",
                "model": "m",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        elif path == b"/v1/files":
            assert b"the file's bytes" in request.body
            result = {
                "id": "file-1",
                "object": "file",
                "bytes": 16,
                "created_at": 1,
                "filename": "a.jsonl",
                "purpose": "batch",
                "status": "processed",
            }
        elif request.line.startswith(b"DELETE "):
            result = {"id": "file-1", "object": "file", "deleted": True}
        else:
            raise AssertionError(request.line)
        await peer.send(answer(json.dumps(result).encode(), b"content-type: application/json"))


@contextlib.asynccontextmanager
async def through() -> AsyncIterator[tuple[openai.AsyncOpenAI, Production, Sidecar]]:
    production = Production()
    async with (
        upstream(production) as up,
        sidecar(up.port) as side,
        openai.AsyncOpenAI(base_url=side.base_url, api_key="sk-agent", max_retries=2) as client,
    ):
        yield client, production, side


async def test_async_completion() -> None:
    async with through() as (client, production, _):
        result = await client.chat.completions.create(model="m", messages=MESSAGES)
    assert result.choices[0].message.content == "four"
    assert production.requests[0].values(b"authorization") == [b"Bearer sk-agent"]


async def test_sync_completion_and_stream() -> None:
    async with through() as (_, _, side):

        def call() -> tuple[str | None, str]:
            with openai.OpenAI(base_url=side.base_url, api_key="sk-agent") as client:
                whole = client.chat.completions.create(model="m", messages=MESSAGES)
                stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
                return whole.choices[0].message.content, "".join(c.choices[0].delta.content or "" for c in stream)

        assert await asyncio.to_thread(call) == ("four", "four €")


async def test_async_stream() -> None:
    async with through() as (client, _, side):
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        exchange = await side.tap.next()
    assert text == "four €"
    assert exchange.complete
    assert exchange.response_body.endswith(b"data: [DONE]\n\n")


TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]


async def test_tools() -> None:
    async with through() as (client, _, _):
        result = await client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS)
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS, stream=True)
        calls = [call async for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()]
    assert result.choices[0].message.tool_calls[0].function.arguments == '{"a":2,"b":2}'
    assert calls[0].function.name == "add"


async def test_structured_output() -> None:
    class Sum(BaseModel):
        value: int

    async with through() as (client, _, _):
        result = await client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Sum)
    assert result.choices[0].message.parsed == Sum(value=4)


async def test_models_embeddings_and_files() -> None:
    async with through() as (client, _, side):
        assert [model.id async for model in client.models.list()] == ["m"]
        embedding = await client.embeddings.create(model="m", input="x", encoding_format="float")
        assert embedding.data[0].embedding == [0.5, 0.25]
        uploaded = await client.files.create(file=("a.jsonl", b"the file's bytes"), purpose="batch")
        assert uploaded.id == "file-1"
        assert (await client.files.delete("file-1")).deleted
        assert side.tap.exchanges.empty()


@pytest.mark.parametrize("status", [b"429 Too Many Requests", b"500 Internal Server Error"])
async def test_retries_reach_production_with_their_count(status: bytes) -> None:
    async with through() as (client, production, _):
        production.failures = [answer(b'{"error":{"message":"x"}}', b"retry-after-ms: 1", status=status)] * 2
        result = await client.chat.completions.create(model="m", messages=MESSAGES)
    assert result.choices[0].message.content == "four"
    counts = [request.values(b"x-stainless-retry-count") for request in production.requests]
    assert counts == [[b"0"], [b"1"], [b"2"]]


async def test_productions_refusal_raises_the_sdks_error() -> None:
    async with through() as (client, production, _):
        body = b'{"error":{"message":"no such model","type":"invalid_request_error","code":"model_not_found"}}'
        production.failures = [answer(body, b"content-type: application/json", status=b"404 Not Found")]
        with pytest.raises(openai.NotFoundError, match="no such model") as caught:
            await client.chat.completions.create(model="x", messages=MESSAGES)
    assert caught.value.code == "model_not_found"


async def test_unreachable_production_raises_the_sdks_error() -> None:
    async with sidecar(9) as side, openai.AsyncOpenAI(base_url=side.base_url, api_key="x", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="m", messages=MESSAGES)
    assert caught.value.status_code == 502
    assert caught.value.type == "upstream_unreachable"


async def test_broken_stream_raises_the_sdks_error() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        data = event(content="half")
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        await peer.send(head + b"%x\r\n%b\r\n" % (len(data), data))

    async with (
        upstream(script) as up,
        sidecar(up.port) as side,
        openai.AsyncOpenAI(base_url=side.base_url, api_key="x", max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
        first = await anext(aiter(stream))
        with pytest.raises(openai.APIConnectionError) as caught:
            await anext(aiter(stream))
    assert first.choices[0].delta.content == "half"
    assert "incomplete" in str(caught.value.__cause__)
