"""The application: the proxy in front, the control routes behind it, the training side beside them."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from slipstream import __version__
from slipstream.config.settings import Listen, Settings
from slipstream.errors import ConfigError, RequestError, SlipstreamError, error_body
from slipstream.proxy.asgi import Proxy
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.server import UVICORN_OPTIONS, server_config
from slipstream.routes import commit, facade, feedback, marks, observe
from slipstream.routes.body import Refusal
from slipstream.sidecar import Sidecar
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)

_RETRY_AFTER = "5"
"""Seconds: a locked or full store is worth another try soon, and not in a tight loop."""


_HEADERS = {
    401: {"WWW-Authenticate": 'Bearer, Basic realm="slipstream"'},
    503: {"Retry-After": _RETRY_AFTER},
}
"""What an error of this status tells the client to do."""


def serve(settings: Settings) -> None:
    """Run the sidecar until SIGTERM or SIGINT, and end it in order.

    Raises:
        ConfigError: the address cannot be listened on, or the store cannot be opened.
    """
    listen = settings.listen
    # the socket first: of two sidecars started by mistake, the second must not touch the store
    with _listening(listen) as listener:
        asyncio.run(_try_store(settings.store.url))
        app = create_app(settings)
        gc.collect()
        gc.freeze()  # the modules stay for good: each full collection that went through them held traffic up for 90 ms
        _log.info("listening", host=listen.host, port=listener.getsockname()[1])
        server = uvicorn.Server(server_config(app, listen.host, listen.port))
        server.run(sockets=[listener])
    if not server.started:
        raise SlipstreamError("the sidecar did not start, see above")


def _listening(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=UVICORN_OPTIONS["backlog"])
    except OSError as error:
        raise ConfigError(
            f"listen: expected an address that is free on this machine, found {listen.host}:{listen.port} "
            f"({error.strerror or error})"
        ) from error


async def _try_store(url: str) -> None:
    """Open the store once before anything runs: what is wrong with it becomes one message instead of a traceback."""
    database = Database(url)
    try:
        await database.open()
    finally:
        await database.close()


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
    refusals: dict[int | str, dict[str, Any]] = {status: {"model": Refusal} for status in (400, 404, 422, 503)}
    control = FastAPI(title="Slipstream", version=__version__, lifespan=lifespan, responses=refusals)
    control.state.sidecar = sidecar
    for module in (feedback, marks, commit, observe, facade):
        control.include_router(module.router)
    control.add_exception_handler(RequestError, _request_error)
    control.add_exception_handler(RequestValidationError, _validation_error)
    control.add_exception_handler(HTTPException, _http_error)
    control.add_exception_handler(SQLAlchemyError, _store_error)
    control.add_exception_handler(OSError, _store_error)  # what the driver of a database over the network raises
    control.add_exception_handler(Exception, _fault)
    return control


async def _request_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    body = error_body(str(error), kind=kind, code=error.code, param=error.param)
    return JSONResponse(body, error.status, headers=_HEADERS.get(error.status))


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return JSONResponse(error_body("the body is not valid JSON", code="invalid_json"), 400)
    fields = [_field(problem["loc"]) for problem in problems]
    if fields == [""] and problems[0]["type"] in ("missing", "model_attributes_type"):
        text = "expected a JSON object as the body, with the header content-type: application/json"
        return JSONResponse(error_body(text, code="invalid_request"), 422)
    texts = [str(problem["msg"]).removeprefix("Value error, ") for problem in problems]
    message = "; ".join(f"{field}: {text}" if field else text for field, text in zip(fields, texts, strict=True))
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


async def _fault(request: Request, error: Exception) -> JSONResponse:
    """A fault of ours; the server logs its traceback."""
    return JSONResponse(error_body("a fault of the sidecar; its log says more", kind="server_error", code="fault"), 500)
