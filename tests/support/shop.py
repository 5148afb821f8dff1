"""A production model that plays the shop's support of `examples/`: it looks the order up, refunds, and answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from scripted import completion, tool_call
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ANSWER = "The lamp of order 17 is refunded: 40 EUR are on their way."


def shop_app(streamed: list[bool]) -> Starlette:
    """Answers each step of an agent with the tools `find_order(order_id)` and `refund(order_id, amount)`.

    Args:
        streamed: takes whether each request asked for a stream.
    """
    numbers = itertools.count()

    async def chat(request: Request) -> Response:
        body = await request.json()
        number = next(numbers)
        streamed.append(bool(body.get("stream")))
        results = [str(message["content"]) for message in body["messages"] if message["role"] == "tool"]
        if not results:
            calls = [tool_call("find_order", {"order_id": "17"}, f"call_{number}")]
        elif len(results) == 1 and "arrived broken" in results[0]:
            calls = [tool_call("refund", {"order_id": "17", "amount": 40}, f"call_{number}")]
        else:
            calls = []
        done = len(results) == 2 and "refunded 40" in results[1]
        text = "" if calls else ANSWER if done else f"I am lost: {results}"
        answer = completion(f"prod-{number}", text, calls)
        if body.get("stream"):
            return StreamingResponse(_events(answer), media_type="text/event-stream")
        return JSONResponse(answer)

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


async def _events(answer: dict[str, Any]) -> AsyncIterator[str]:
    choice = answer["choices"][0]
    delta = choice["message"]
    if "tool_calls" in delta:
        delta = {**delta, "tool_calls": [{**call, "index": at} for at, call in enumerate(delta["tool_calls"])]}
    head = {**answer, "object": "chat.completion.chunk"}
    head.pop("usage")
    for part, reason in ((delta, None), ({}, choice["finish_reason"])):
        yield f"data: {json.dumps({**head, 'choices': [{'index': 0, 'delta': part, 'finish_reason': reason}]})}\n\n"
    yield "data: [DONE]\n\n"
