"""The embedded Explorer as a server: of a job's policy, or of a model that nothing trains."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.engines.engine import Engine, EngineStopped
from slipstream.embedded.explorer import Explorer
from slipstream.embedded.explorer_routes import add_routes

log = structlog.get_logger(__name__)

_FROZEN_CONTEXT = 4096  # of `serve_frozen` unless more is asked for: the memory of an answer grows with it

_GRACE_SECONDS = 10  # for requests in flight at shutdown; the rest fails with 503


def create_app(config: EngineConfig, clock: Callable[[], float] = time.time, vllm: Path | None = None) -> FastAPI:
    """The Explorer's HTTP, on a loaded model and an open database; the application's end closes both.

    Raises:
        ConfigError: the model's directory or the database is not what the configuration says.
    """

    explorer = Explorer(config, clock, vllm)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await explorer.look_for_weights()
        following = asyncio.create_task(explorer.follow_weights())
        yield
        following.cancel()
        await asyncio.to_thread(explorer.close)

    app = FastAPI(title="Slipstream embedded Explorer", lifespan=lifespan, redirect_slashes=False)
    app.state.explorer = explorer
    add_routes(app)
    return app


class _Server(uvicorn.Server):
    """Ends, with an error, when the engine has ended: a supervisor starts both again."""

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        super().__init__(uvicorn.Config(app, host, port, log_level="warning", timeout_graceful_shutdown=_GRACE_SECONDS))
        self.engine: Engine = app.state.explorer.engine
        self.engine_ended = False

    async def on_tick(self, counter: int) -> bool:
        self.engine_ended = not self.engine.alive
        return await super().on_tick(counter) or self.engine_ended

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("explorer ready", url=f"http://{self.config.host}:{self.config.port}")


def serve(config: EngineConfig, vllm: Path | None = None) -> None:
    """Run the Explorer until SIGTERM or SIGINT; requests in flight are finished first.

    Args:
        vllm: the Python of an environment with vLLM, which then samples the answers.

    Raises:
        ConfigError: the model, the database or vLLM does not fit; names the key.
        EngineStopped: the engine ended by itself.
    """
    server = _Server(
        create_app(config, vllm=vllm), host=config.explorer.listen_address, port=config.explorer.proxy_port
    )
    server.run()
    if server.engine_ended:
        raise EngineStopped("the engine has ended")


def serve_frozen(model: Path, port: int, max_model_len: int | None = None) -> None:
    """Serve a model directory that nothing trains, at 127.0.0.1, until SIGTERM or SIGINT.

    Its name in requests is the directory, as it was given. Nothing of what it answers is recorded.

    Args:
        max_model_len: tokens of a prompt and its answer; the model's own, at most 4096, by default.

    Raises:
        ConfigError: the directory holds no model, or that of fewer tokens.
    """
    with tempfile.TemporaryDirectory(prefix="slipstream-model-") as scratch:
        serve(
            EngineConfig.model_validate(
                {
                    "mode": "serve",
                    "checkpoint_root_dir": scratch,
                    "model": {"model_path": str(model), "max_model_len": max_model_len or _context(model)},
                    "explorer": {
                        "proxy_port": port,
                        "record_experiences": False,
                        "rollout_model": {
                            "enable_auto_tool_choice": True,
                            "tool_call_parser": "hermes",
                            "dtype": "auto",
                        },
                    },
                }
            )
        )


def _context(model: Path) -> int:
    """The context length of a model directory, at most `_FROZEN_CONTEXT`."""
    try:
        told = json.loads((model / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    except (OSError, ValueError):  # loading it says what is wrong
        told = None
    return min(_FROZEN_CONTEXT, told or _FROZEN_CONTEXT)
