"""Answers of the Explorer that pass through a route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from slipstream.dialects.form import Dialect
from slipstream.dialects.translators import TRANSLATORS
from slipstream.errors import RequestError
from slipstream.facade.chat import Whole
from slipstream.facade.naming import in_anthropics_form
from slipstream.tracing.context import HEADER, TraceParent, trace_parent

RETRY_AFTER = {429: {"Retry-After": "60"}, 503: {"Retry-After": "5"}}
"""Seconds: a locked or full store is worth another try soon, and not in a tight loop; a budget is counted by the
minute."""

_ANTHROPICS = "anthropic-version"
"""The header by which a request for a list of models shows whose SDK sends it: the path is the same for all."""


class Passing(Response):
    """A response that is made while it is sent.

    Args:
        carry: makes it; also gets the caller's span, if its request has named one.
        dialect: of the caller, in which errors are answered.
    """

    def __init__(self, carry: Callable[[Receive, Send, TraceParent | None], Awaitable[None]], dialect: Dialect) -> None:
        super().__init__()
        self._carry = carry
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._carry(receive, send, trace_parent(dict(scope["headers"]).get(HEADER, b"")))
        except RequestError as error:
            if self._dialect is not Dialect.MESSAGES:  # the others have the control API's own form
                raise
            await _refused(error, self._dialect)(scope, receive, send)


async def models_response(request: Request, listed: Awaitable[Whole]) -> Response:
    """The Explorer's list of models, or the error in its place, in the form of the caller's SDK.

    Raises:
        RequestError: there is no list, and the control API's form is the caller's.
    """
    if _ANTHROPICS not in request.headers:
        return as_it_is(await listed)
    try:
        return as_it_is(in_anthropics_form(await listed))
    except RequestError as error:
        return _refused(error, Dialect.MESSAGES)


def as_it_is(answer: Whole) -> Response:
    """The Explorer's answer as a response."""
    response = Response(answer.body, answer.status)
    response.raw_headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    return response


def _refused(error: RequestError, dialect: Dialect) -> JSONResponse:
    body = TRANSLATORS[dialect].error(error.status, str(error), error.code, error.param)
    return JSONResponse(body, error.status, headers=RETRY_AFTER.get(error.status))
