"""The Explorer's routes: Trinity-RFT's paths and bodies, errors as OpenAI writes them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.exceptions import HTTPException

from slipstream.embedded.completions import ChatRequest
from slipstream.embedded.engines.engine import EngineBusy, EngineError, EngineStopped
from slipstream.embedded.explorer import Explorer
from slipstream.errors import RequestError, error_body

log = structlog.get_logger(__name__)

_RUN_ID = re.compile(r"[0-9]{1,10}")

_RETRY_AFTER = "1"  # seconds: an answer of the running batch ends about so often

Body = TypeVar("Body", bound=BaseModel)


class Feedback(BaseModel):
    """Trinity's body. The reward is strict: Trinity would take NaN and booleans, and train on them.

    `run_id` may be an integer in text, as AgentScope Java sends it, and as SQLite converts it for Trinity; null is 0.
    """

    model_config = ConfigDict(strict=True)

    msg_ids: Annotated[list[str], Field(max_length=10_000)]
    reward: Annotated[float, Field(allow_inf_nan=False)]
    task_id: Annotated[str, Field(max_length=64)] | None = None
    run_id: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @field_validator("run_id", mode="before")
    @classmethod
    def _as_an_integer(cls, value: Any) -> Any:
        if value is None:
            return 0
        return int(value) if isinstance(value, str) and _RUN_ID.fullmatch(value) else value


def add_routes(app: FastAPI) -> None:
    """Adds them to an application whose `state.explorer` is set."""
    app.add_api_route("/v1/chat/completions", chat, methods=["POST"])
    app.add_api_route("/v1/models", models)
    app.add_api_route("/feedback", feedback, methods=["POST"])
    app.add_api_route("/commit", commit, methods=["POST"])
    app.add_api_route("/metrics", metrics)
    app.add_api_route("/health", health)
    app.add_exception_handler(RequestError, refused)
    app.add_exception_handler(EngineError, failed)
    app.add_exception_handler(HTTPException, no_route)


async def chat(request: Request) -> Response:
    explorer = _explorer(request)
    completion = explorer.completion(await _parsed(request, ChatRequest))
    explorer.engine.check_room(completion.request.n or 1)
    explorer.requests += 1
    if completion.request.stream:
        return StreamingResponse(explorer.stream(completion), media_type="text/event-stream")
    answering = asyncio.create_task(explorer.answer(completion))
    leaving = asyncio.create_task(_left(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            return JSONResponse(answering.result())
        return Response(status_code=499)  # nobody reads it
    finally:
        answering.cancel()
        leaving.cancel()


async def models(request: Request) -> Response:
    explorer = _explorer(request)
    model = {
        "id": explorer.config.model.model_path,
        "object": "model",
        "created": int(explorer.started_at),
        "owned_by": "slipstream",
        "max_model_len": explorer.config.model.context_length,
    }
    return JSONResponse({"object": "list", "data": [model]})


async def feedback(request: Request) -> Response:
    explorer = _explorer(request)
    given = await _parsed(request, Feedback)
    await asyncio.to_thread(explorer.store.feedback, given.msg_ids, given.reward, given.task_id, given.run_id)
    return JSONResponse({"status": "success"})


async def commit(request: Request) -> Response:
    explorer = _explorer(request)
    count = await asyncio.to_thread(explorer.store.commit, explorer.algorithm)
    log.info("committed", experiences=count)
    return JSONResponse({"status": "success"})


async def metrics(request: Request) -> Response:
    explorer = _explorer(request)
    return JSONResponse(await asyncio.to_thread(explorer.metrics))


async def health(request: Request) -> Response:
    explorer = _explorer(request)
    return Response(status_code=200 if explorer.engine.alive else 503)


async def _left(request: Request) -> None:
    """Returns when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _parsed(request: Request, kind: type[Body]) -> Body:
    """The body as `kind`.

    Raises:
        RequestError: it is no JSON, or a field of it is wrong; the field is named.
    """
    try:
        return kind.model_validate(json.loads(await request.body()))
    except ValidationError as error:
        first = error.errors()[0]
        param = ".".join(map(str, first["loc"])) or None
        raise RequestError(f"{param or 'body'}: {first['msg']}", param=param, status=400) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"body: expected JSON: {error}", status=400) from error


async def refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return JSONResponse(error_body(str(error), code=error.code, param=error.param), error.status)


async def failed(_: Request, error: Exception) -> Response:
    if isinstance(error, EngineBusy):
        body = error_body(str(error), kind="rate_limit_error", code="too_many_requests")
        return JSONResponse(body, 429, {"Retry-After": _RETRY_AFTER})
    return JSONResponse(error_body(str(error), kind="server_error"), 503 if isinstance(error, EngineStopped) else 500)


async def no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(error_body(str(error.detail)), error.status_code)


def _explorer(request: Request) -> Explorer:
    explorer: Explorer = request.app.state.explorer
    return explorer
