"""Answers of the Explorer that pass through a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Response
from starlette.types import Receive, Scope, Send

from slipstream.facade.chat import Whole


class Passing(Response):
    """A response that is made while it is sent."""

    def __init__(self, carry: Callable[[Receive, Send], Awaitable[None]]) -> None:
        super().__init__()
        self._carry = carry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._carry(receive, send)


def as_it_is(answer: Whole) -> Response:
    """The Explorer's answer as a response."""
    response = Response(answer.body, answer.status)
    response.raw_headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    return response
