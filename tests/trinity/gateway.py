"""A gateway between the sidecar and Trinity that fails as gateways and networks do, at the moment a test names."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Gateway:
    """Hands each request on to `url`.

    Attributes:
        refused: by path, requests that get 503 instead, and of which Trinity never hears.
        unanswered: by path, requests that Trinity carries out, while the sidecar is told 504.
        before: by path, what happens right before the next requests are handed on, one each.
        requests: by path, how many came.
        busiest: by path, most requests at once.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.refused: Counter[str] = Counter()
        self.unanswered: Counter[str] = Counter()
        self.before: dict[str, deque[Callable[[], Awaitable[None]]]] = defaultdict(deque)
        self.requests: Counter[str] = Counter()
        self.busiest: Counter[str] = Counter()
        self._active: Counter[str] = Counter()

    def app(self) -> Starlette:
        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as self._client:
                yield

        return Starlette(routes=[Route("/{path:path}", self._pass, methods=["GET", "POST"])], lifespan=lifespan)

    async def _pass(self, request: Request) -> Response:
        path = request.url.path
        self.requests[path] += 1
        self._active[path] += 1
        self.busiest[path] = max(self.busiest[path], self._active[path])
        try:
            return await self._answer(path, request.method, await request.body())
        finally:
            self._active[path] -= 1

    async def _answer(self, path: str, method: str, body: bytes) -> Response:
        if self.refused[path]:
            self.refused[path] -= 1
            return JSONResponse({"error": {"message": "no healthy upstream"}}, 503)
        if self.before[path]:
            await self.before[path].popleft()()
        headers = {"content-type": "application/json", "connection": "close"}
        try:
            answer = await self._client.request(method, path, content=body, headers=headers)
        except httpx.TransportError:
            return JSONResponse({"error": {"message": "upstream connect error"}}, 502)
        if self.unanswered[path]:
            self.unanswered[path] -= 1
            return JSONResponse({"error": {"message": "upstream request timeout"}}, 504)
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))
