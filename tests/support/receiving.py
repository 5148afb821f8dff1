"""A receiver of webhooks, as a user would write one."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slipstream_client import verify_webhook

SECRET = "whsec_cmVjZWl2ZXIgc2VjcmV0IG9mIHNvbWUgbGVuZ3Ro"


class Receiver:
    """Takes events at `/hook`.

    Attributes:
        answers: statuses of its next answers; then 204.
        ids: of the messages that came, each try.
        told: contents of the messages that it took, verified.
        hold: while it is not set, nothing is answered.
    """

    def __init__(self, *answers: int, secret: str = SECRET) -> None:
        self.answers = list(answers)
        self.secret = secret
        self.ids: list[str] = []
        self.told: list[dict[str, Any]] = []
        self.hold = asyncio.Event()
        self.hold.set()

    @property
    def types(self) -> list[str]:
        """The types of the events that it took."""
        return [each["type"] for each in self.told]

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/hook", self._hook, methods=["POST"]), Route("/other", self._other)])

    async def _hook(self, request: Request) -> Response:
        content = verify_webhook(await request.body(), request.headers, self.secret, tolerance=1e12)
        self.ids.append(request.headers["webhook-id"])
        await self.hold.wait()
        status = self.answers.pop(0) if self.answers else 204
        if 200 <= status < 300:
            self.told.append(content)
        return Response(status_code=status, headers={"location": "/other"} if status == 307 else None)

    async def _other(self, request: Request) -> Response:
        raise AssertionError("a redirect was followed")
