"""An OpenAI-compatible endpoint for tests of the tuner: its answers, their tokens and their time are a function."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass(frozen=True)
class Said:
    """An answer: its text, the tokens that it says it took, and the seconds that it takes."""

    text: str
    tokens: tuple[int, int] = (3, 2)
    seconds: float = 0.0


def endpoint(answer: Callable[[dict[str, Any]], Said]) -> Starlette:
    """Serves `/v1/chat/completions`, streamed or not; where `answer` raises, that is a 400."""
    numbers = itertools.count()

    async def chat(request: Request) -> Response:
        body = await request.json()
        try:
            said = answer(body)
        except ValueError as error:
            return JSONResponse({"error": {"message": str(error), "type": "invalid_request_error"}}, 400)
        await asyncio.sleep(said.seconds)
        prompt, completion = said.tokens
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        head = {"id": f"chatcmpl-{next(numbers)}", "created": 1, "model": body["model"]}
        if body.get("stream"):
            asked = (body.get("stream_options") or {}).get("include_usage")
            return StreamingResponse(_chunks(head, said.text, usage if asked else None), media_type="text/event-stream")
        choice = {"index": 0, "message": {"role": "assistant", "content": said.text}, "finish_reason": "stop"}
        return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


async def _chunks(head: dict[str, Any], text: str, usage: dict[str, int] | None) -> AsyncIterator[str]:
    head = {**head, "object": "chat.completion.chunk"}
    for content, reason in ((text, None), ("", "stop")):
        choice = {"index": 0, "delta": {"content": content}, "finish_reason": reason}
        yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
    if usage is not None:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"
