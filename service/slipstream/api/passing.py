"""Answers of the Explorer that pass through a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from slipstream.dialects.form import Dialect
from slipstream.dialects.translators import TRANSLATORS
from slipstream.errors import RequestError
from slipstream.facade.chat import Whole


class Passing(Response):
    """A response that is made while it is sent.

    Args:
        dialect: of the caller, in which errors are answered.
    """

    def __init__(self, carry: Callable[[Receive, Send], Awaitable[None]], dialect: Dialect) -> None:
        super().__init__()
        self._carry = carry
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._carry(receive, send)
        except RequestError as error:
            if self._dialect is not Dialect.MESSAGES:  # the others have the control API's own form
                raise
            body = TRANSLATORS[self._dialect].error(error.status, str(error), error.code, error.param)
            await JSONResponse(body, error.status)(scope, receive, send)


def as_it_is(answer: Whole) -> Response:
    """The Explorer's answer as a response."""
    response = Response(answer.body, answer.status)
    response.raw_headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    return response
