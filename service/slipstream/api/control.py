"""The control API: its routes on one application, with every error in OpenAI's format."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from slipstream import __version__
from slipstream.api import (
    audit,
    commit,
    costs,
    data,
    datasets,
    docs,
    evaluations,
    events,
    experiments,
    facade,
    feedback,
    imports,
    keys,
    learning,
    marks,
    observe,
    page,
    preferences,
    quarantine,
    rollouts,
    runs,
    serving,
    session,
    settings,
    tasks,
    versions,
)
from slipstream.api.page_sessions import PageSessions
from slipstream.api.passing import RETRY_AFTER
from slipstream.api.store_failed import store_failed
from slipstream.errors import RequestError, error_body
from slipstream.http.body import Refusal
from slipstream.http.validation import describe, field
from slipstream.sidecar import Sidecar

_UNREADABLE = {UnicodeDecodeError: "it is not UTF-8", RecursionError: "it is nested too deeply"}
_LONGEST_PATH = 200
"""Characters that an error quotes."""


def create_control(sidecar: Sidecar, lifespan: Any) -> FastAPI:
    """The control routes, with every error in OpenAI's format."""
    control = FastAPI(
        title="Slipstream",
        version=__version__,
        lifespan=lifespan,
        routes=[*_routes()],
        docs_url=None,  # FastAPI's pages load scripts from another host
        redoc_url=None,
        redirect_slashes=False,  # such an answer's Location would be made of the request's Host
    )
    control.state.sidecar = sidecar
    control.state.events = events.hub_of(sidecar)
    control.add_exception_handler(RequestError, _request_error)
    control.add_exception_handler(RequestValidationError, _validation_error)
    control.add_exception_handler(HTTPException, _http_error)
    control.add_exception_handler(SQLAlchemyError, store_failed)
    control.add_exception_handler(OSError, store_failed)  # what the driver of a database over the network raises
    control.add_exception_handler(Exception, _fault)
    control.add_middleware(PageSessions, sidecar=sidecar)
    return control


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """The routes of all modules. FastAPI reads the signatures of their functions, which takes longer than all else that
    a start does: once, however many sidecars start in one process."""
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"model": Refusal} for status in (400, 401, 403, 404, 409, 413, 422, 429, 503)
    }
    control = FastAPI(responses=refusals, openapi_url=None, docs_url=None, redoc_url=None)
    for module in (
        feedback,
        marks,
        commit,
        costs,
        data,
        datasets,
        imports,
        audit,
        keys,
        settings,
        tasks,
        observe,
        page,
        events,
        preferences,
        quarantine,
        rollouts,
        experiments,
        versions,
        learning,
        evaluations,
        runs,
        serving,
        session,
        facade,
        docs,
    ):
        control.include_router(module.router)
    return tuple(control.routes)


async def _request_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestError)
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    body = error_body(str(error), kind=kind, code=error.code, param=error.param)
    return JSONResponse(body, error.status, headers=RETRY_AFTER.get(error.status))


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    for problem in error.errors():
        if problem["type"] == "json_invalid":
            return _no_json(f"{problem['ctx']['error']}{_at(problem['loc'])}")
    # the first part of a place says which part of the request it is in
    problems: list[Any] = [{**problem, "loc": problem["loc"][1:]} for problem in error.errors()]
    message = describe(problems, _model(request.scope.get("route")))
    return JSONResponse(error_body(message, code="invalid_request", param=field(problems[0]) or None), 422)


def _model(route: Any) -> type[BaseModel] | None:
    """Return the model of a route's body, or of its query."""
    dependant = getattr(route, "dependant", None)
    fields = () if dependant is None else (*dependant.body_params, *dependant.query_params)
    models = (field.field_info.annotation for field in fields)
    return next((each for each in models if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _no_json(why: str) -> JSONResponse:
    return JSONResponse(error_body(f"the body: expected JSON, found none: {why}", code="invalid_json"), 400)


def _at(place: Sequence[Any]) -> str:
    """Return the place where the JSON parser stopped, which FastAPI gives instead of a field; pydantic's own text has
    it."""
    return f" at character {place[1]}" if len(place) > 1 else ""


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    method, path = request.method, request.url.path[:_LONGEST_PATH]
    if isinstance(error.__cause__, ValueError | RecursionError):  # FastAPI's 400 for what json cannot read
        return _no_json(_UNREADABLE.get(type(error.__cause__), "a number has too many digits"))
    told = {404: f"{method} {path}: there is no such route; GET /openapi.json lists them"}
    if error.headers and "Allow" in error.headers:
        told[405] = f"{path}: expected the method {error.headers['Allow']}, found {method}"
    message = told.get(error.status_code, str(error.detail))
    return JSONResponse(error_body(message, code="http_error"), error.status_code, headers=error.headers)


async def _fault(request: Request, error: Exception) -> JSONResponse:
    """A fault of ours; the server logs its traceback."""
    return JSONResponse(error_body("a fault of the sidecar; its log says more", kind="server_error", code="fault"), 500)
