"""A model server with vLLM's OpenAI API that answers by script: what stands behind the real Trinity in the tests."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

WAYS = ("empty", "no_ids", "cut", "fail")
"""How a prompt can ask for trouble: by the word `[empty]` (a completion without a token), `[no_ids]` (one without
token ids), `[cut]` (a connection that ends in the middle of a stream) or `[fail]` (an error 500 of the engine)."""


class ScriptedEngine:
    """Answers each chat with `worth R`, the rewards R taken in turn from `worth`.

    Attributes:
        worth: the rewards that its answers promise; the calculator `worth:reward` gives them.
        ways: what comes of the next chats, one each ("" for an answer), before the prompts decide again.
        model: the name it serves; another one in a request is a 404, as with vLLM.
        chats, headers: the requests that it was sent.
        answered: by prompt, how many answers.
        hold: while it is not set, chats wait.
        reloading: while it is not set, a reload takes on.
        reloads: versions that it was told to load.
        busiest: most chats at once.
    """

    def __init__(self, worth: Iterable[float] = (0.0, 1.0), model: str = "policy") -> None:
        self.worth: Iterator[float] = itertools.cycle(worth)
        self.ways: deque[str] = deque()
        self.model = model
        self.chats: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answered: Counter[str] = Counter()
        self.hold = asyncio.Event()
        self.hold.set()
        self.reloading = asyncio.Event()
        self.reloading.set()
        self.reloads: list[int] = []
        self.busiest = 0
        self._active = 0
        self._before_hold: int | None = None

    def pause_after(self, chats: int) -> None:
        """Chats wait once so many more were let through, until `hold` is set."""
        self._before_hold = chats

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/reload", self._reload, methods=["POST"]),
            ]
        )

    async def _chat(self, request: Request) -> Response:
        try:
            body = await request.json()
        except ClientDisconnect:
            return Response(status_code=499)
        self.chats.append(body)
        self.headers.append(dict(request.headers))
        self._active += 1
        self.busiest = max(self.busiest, self._active)
        if self._before_hold == 0:
            self.hold.clear()
            self._before_hold = None
        elif self._before_hold is not None:
            self._before_hold -= 1
        try:
            await self.hold.wait()
        finally:
            self._active -= 1
        if body.get("model") != self.model:
            return _error(404, f"The model `{body.get('model')}` does not exist.")
        prompt = str(body["messages"][-1]["content"])
        way = self.ways.popleft() if self.ways else next((way for way in WAYS if f"[{way}]" in prompt), "")
        if way == "fail":
            return _error(500, "EngineCore encountered an issue.")
        self.answered[prompt] += 1
        answer = self._completion(body, way)
        if not body.get("stream"):
            return JSONResponse(answer)
        return StreamingResponse(_chunks(answer, cut=way == "cut"), media_type="text/event-stream")

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def _reload(self, request: Request) -> Response:
        self.reloads.append((await request.json())["version"])
        await self.reloading.wait()
        return JSONResponse({})

    def _completion(self, body: dict[str, Any], way: str) -> dict[str, Any]:
        prompt = " ".join(str(message["content"]) for message in body["messages"]).split()
        return {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.model,
            "prompt_token_ids": list(range(1, len(prompt) + 1)),
            "choices": [self._choice(index, way) for index in range(body.get("n", 1))],
        }

    def _choice(self, index: int, way: str) -> dict[str, Any]:
        words = [] if way == "empty" else ["worth", str(next(self.worth))]
        return {
            "index": index,
            "message": {"role": "assistant", "content": " ".join(words)},
            "finish_reason": "stop",
            "token_ids": None if way == "no_ids" else list(range(100, 100 + len(words))),
            "logprobs": {"content": [{"token": word, "logprob": -0.5, "top_logprobs": []} for word in words]},
        }


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "InternalServerError", "code": status}}, status)


async def _chunks(answer: dict[str, Any], *, cut: bool) -> AsyncIterator[str]:
    """The answer as a stream: a chunk for each token. One that is cut ends after the first token, without notice."""
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    first: dict[str, Any] = {"prompt_token_ids": answer["prompt_token_ids"]}
    for choice in answer["choices"]:
        words = choice["message"]["content"].split()
        for number, word in enumerate(words):
            part = {
                "index": choice["index"],
                "delta": {"content": word},
                "finish_reason": choice["finish_reason"] if number + 1 == len(words) else None,
                "token_ids": choice["token_ids"][number : number + 1],
                "logprobs": {"content": choice["logprobs"]["content"][number : number + 1]},
            }
            yield f"data: {json.dumps({**head, **first, 'choices': [part]})}\n\n"
            first = {}
            await asyncio.sleep(0)
            if cut:
                raise ConnectionResetError("the engine went away")
    yield "data: [DONE]\n\n"
