"""The application: the proxy in front, the control routes behind it, the training side beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from slipstream import __version__
from slipstream.config.settings import Settings
from slipstream.errors import RequestError, SlipstreamError, error_body
from slipstream.proxy.asgi import Proxy
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.server import server_config
from slipstream.routes import commit, feedback, marks, observe
from slipstream.sidecar import Sidecar

_log = structlog.get_logger(__name__)

_RETRY_AFTER = "5"
"""Seconds: a locked or full store is worth another try soon, and not in a tight loop."""


def serve(settings: Settings) -> None:
    """Run the sidecar until SIGTERM or SIGINT, and end it in order.

    Raises:
        SlipstreamError: it could not start (the port is taken, the store cannot be opened); the log says why.
    """
    server = uvicorn.Server(server_config(create_app(settings), settings.listen.host, settings.listen.port))
    try:
        server.run()
    except SystemExit:  # uvicorn's word for a socket that it cannot bind
        server.started = False
    if not server.started:
        raise SlipstreamError(f"the sidecar did not start on {settings.listen.host}:{settings.listen.port}, see above")


def create_app(settings: Settings) -> ASGIApp:
    """The whole sidecar as one ASGI application; its lifespan starts and stops everything."""
    sidecar = Sidecar(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await sidecar.start()
        yield
        proxy.close()
        await sidecar.stop()

    control = create_control(sidecar, lifespan)
    metrics = ProxyMetrics(sidecar.metrics.registry)
    proxy = Proxy(control, settings.production, settings.capture, sidecar.recorder, metrics)
    return proxy


def create_control(sidecar: Sidecar, lifespan: Any) -> FastAPI:
    """The control routes, with every error in OpenAI's format."""
    control = FastAPI(title="Slipstream", version=__version__, lifespan=lifespan)
    control.state.sidecar = sidecar
    for module in (feedback, marks, commit, observe):
        control.include_router(module.router)
    control.add_exception_handler(RequestError, _request_error)
    control.add_exception_handler(RequestValidationError, _validation_error)
    control.add_exception_handler(HTTPException, _http_error)
    control.add_exception_handler(DBAPIError, _store_error)
    return control


async def _request_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    headers = {"Retry-After": _RETRY_AFTER} if error.status == 503 else None
    return JSONResponse(
        error_body(str(error), kind=kind, code=error.code, param=error.param), error.status, headers=headers
    )


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return JSONResponse(error_body("the body is not valid JSON", code="invalid_json"), 400)
    fields = [_field(problem["loc"]) for problem in problems]
    message = "; ".join(
        f"{field}: {problem['msg']}" if field else problem["msg"]
        for field, problem in zip(fields, problems, strict=True)
    )
    return JSONResponse(error_body(message, code="invalid_request", param=fields[0] or None), 422)


def _field(location: Sequence[Any]) -> str:
    """The path of a field without the part of the request that it is in."""
    return ".".join(str(part) for part in location[1:])


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse(error_body(str(error.detail), code="http_error"), error.status_code, headers=error.headers)


async def _store_error(request: Request, error: Exception) -> JSONResponse:
    """Nothing was stored, so nothing is acknowledged."""
    _log.error("store_failed", path=request.url.path, error=repr(error))
    return JSONResponse(
        error_body("the store does not take writes at the moment; try again", kind="server_error", code="store_failed"),
        503,
        headers={"Retry-After": _RETRY_AFTER},
    )
