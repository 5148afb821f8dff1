"""Routes whose bodies are read in memory that is reserved for them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from slipstream.errors import RequestError
from slipstream.memory.parsing import PATIENCE, Share, memory_of
from slipstream.sidecar import Sidecar

COPIES = 3
"""Copies of a body's values: the checks of its fields make some."""


class BodyRoute(APIRoute):
    """A route of which the body, where it has one, waits a while for memory, and is refused with 503 without."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_in_memory(request: Request) -> Response:
            sidecar: Sidecar = request.app.state.sidecar
            size = memory_of(await whole_body(request), copies=COPIES)
            async with sidecar.context.parsing.held(size, Share.CONTROL, patience=PATIENCE):
                return await handle(request)

        return handle_in_memory


async def whole_body(request: Request) -> bytes:
    """The body, of at most `limits.control_body`, which the proxy sees to.

    Raises:
        RequestError: 400, its end did not come. The caller is gone; raising this keeps a traceback out of the log.
    """
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise RequestError("the body: its end did not come", status=400, code="invalid_json") from error
