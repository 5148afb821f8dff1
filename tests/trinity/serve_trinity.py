"""Trinity-RFT's serve mode without Ray: run by `.trinity-venv/bin/python`, it knows nothing of Slipstream.

Real, unmodified, from the package `trinity-rft`: the proxy's FastAPI application with all its routes, ExplorerService
with its queue and its loop that reloads engines, the SQL history recorder, the rollout coordinator, the experience
pipeline with its advantage operators, the SQL writer of the Trainer's buffer, the monitor, the configuration's loader
and its validators (all but the one that asks a Ray cluster).

Not real: the engines (`HttpEngine` calls an OpenAI-compatible URL where Trinity has a vLLM actor); Ray (a `.remote`
call is awaited directly, the buffer's writer runs in this process); the weights of a new version (a POST to the engine
takes their place, and lasts as long as that engine pleases).

The process imports Trinity once (some seconds) and forks for each order, so that a test has a Trinity of its own, and a
fresh one after `kill -9`, in a fraction of a second. What is forked is a service, or a program of this folder. Orders
and answers are lines of JSON on stdin and stdout:

    {"do": "serve", "config": FILE, "engines": [URL, ...], "log": FILE}   -> {"pid": ...}
    {"do": "read", "database": FILE, "table": NAME}                       -> {"experiences": [...]}
    {"do": "run", "program": FILE, "arguments": [TEXT, ...], "input": TEXT, "folder": FOLDER, "path": [FOLDER, ...],
     "environment": {NAME: VALUE}, "errors": FILE}                        -> {"printed": TEXT}

The services end with this process, and this process ends when its stdin is closed.
"""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import signal
import sqlite3
import sys
import traceback
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_LONGEST = 300
"""Seconds after which a program is killed, and what it printed ends."""

_POLL = 0.1
"""Seconds between two looks at the marker of the newest version; Trinity's synchronizer takes 1."""


def stand_in_for_vllm() -> None:
    """Trinity imports these names where it handles images. Nothing that is called here uses one of them."""

    def module(name: str, **names: Any) -> None:
        made = types.ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        made.__path__ = []
        vars(made).update(names)
        sys.modules[name] = made

    module("vllm", __version__="0")
    module("vllm.config", ModelConfig=object)
    module("vllm.inputs", MultiModalDataDict=dict)
    module("vllm.entrypoints")
    module(
        "vllm.entrypoints.chat_utils",
        ChatTemplateContentFormat=str,
        ConversationMessage=dict,
        parse_chat_messages=None,
        parse_chat_messages_async=None,
    )


if importlib.util.find_spec("vllm") is None:
    stand_in_for_vllm()

import httpx  # noqa: E402
from trinity.buffer.pipelines.experience_pipeline import ExperiencePipeline  # noqa: E402
from trinity.common.config import load_config  # noqa: E402
from trinity.common.config_validator import RayClusterConfigValidator, validators  # noqa: E402
from trinity.common.constants import RunningStatus  # noqa: E402
from trinity.common.experience import Experience  # noqa: E402
from trinity.explorer.proxy.app import app as _app  # noqa: E402, F401 - imported before the fork
from trinity.explorer.proxy.service import ExplorerService  # noqa: E402
from trinity.explorer.rollout_coordinator import RolloutCoordinator  # noqa: E402
from trinity.utils.monitor import MONITOR  # noqa: E402


class Direct:
    """An object whose `method.remote(...)` is a plain call, as an actor's handle would have it."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self._target, name))


class HttpEngine:
    """What ExplorerService asks of an engine, of one behind a URL."""

    def __init__(self, url: str) -> None:
        self.api_address = url
        self.request_count = 0
        self.status = RunningStatus.RUNNING
        self.model_version = 0

    @property
    async def model_version_async(self) -> int:
        return self.model_version

    async def get_current_load(self) -> int:
        return 0

    async def sync_model_weights(self, version: int, **_: Any) -> None:
        async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
            (await client.post(f"{self.api_address}/reload", json={"version": version})).raise_for_status()
        self.model_version = version


def checked_config(path: Path) -> Any:
    """The configuration as `trinity run` would accept it on a Ray cluster."""
    config = load_config(str(path))
    for validator in validators:
        if not isinstance(validator, RayClusterConfigValidator):
            validator.validate(config)
    return config


async def serve(path: Path, engines: list[str]) -> None:
    config = checked_config(path)
    config.ray_namespace = config.ray_namespace or "contract"
    coordinator = RolloutCoordinator(config)
    pipeline = ExperiencePipeline(config)
    pipeline.output.wrap_in_ray = False
    await pipeline.prepare()
    coordinator.experience_pipeline = pipeline
    await coordinator.prepare()
    monitor = MONITOR.get(config.monitor.monitor_type)(
        project=config.project, group=config.group, name=config.name, role=config.explorer.name, config=config
    )
    explorer = SimpleNamespace(
        models=[HttpEngine(url) for url in engines],
        config=config,
        rollout_coordinator=Direct(coordinator),
        monitor=monitor,
        explore_step_num=0,
    )
    service = ExplorerService(explorer, listen_address=config.explorer.listen_address, port=config.explorer.proxy_port)
    await service.serve()
    marker = Path(config.checkpoint_job_dir, "latest_state_dict_iteration.txt")
    while not service.serve_task.done():
        if (version := marked(marker)) is not None:
            service.set_latest_model_version(version)
        await asyncio.sleep(_POLL)
    service.serve_task.result()


def marked(marker: Path) -> int | None:
    """The version that the Trainer has marked as its newest, or None before its first."""
    return int(text) if marker.exists() and (text := marker.read_text().strip()) else None


def forked(order: dict[str, Any]) -> int:
    """Serve in a new process, which writes to the log of its own; returns its id."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for opened, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(opened, standard)
    try:
        asyncio.run(serve(Path(order["config"]), order["engines"]))
    finally:
        os._exit(1)


def ran(order: dict[str, Any]) -> str:
    """Run a program in a new process to its end; returns what it printed. Its errors go to a file."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with os.fdopen(reading) as printed:
            return printed.read()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.alarm(_LONGEST)
    errors = os.open(order["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for opened, standard in ((writing, 1), (errors, 2)):
        os.dup2(opened, standard)
    try:
        os.chdir(order["folder"])
        os.environ.update(order["environment"])
        sys.path[1:1] = order["path"]
        sys.argv = [order["program"], *order["arguments"]]
        sys.stdin = io.StringIO(order["input"])
        runpy.run_path(order["program"], run_name="__main__")
    except BaseException:  # noqa: BLE001 - this process ends here, whatever was raised
        traceback.print_exc()
        print("failed")  # after whatever it has printed: a last line that is no answer
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def experiences(database: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of experiences, in the order of writing, with what only Trinity can unpack."""
    columns = "task_id, run_id, msg_id, reward, model_version, experience_bytes"
    query = f"SELECT {columns} FROM {table} JOIN {table}_blob USING (id) ORDER BY id"
    with sqlite3.connect(database) as connection:
        rows = connection.execute(query).fetchall()
    connection.close()
    found = []
    for task_id, run_id, msg_id, reward, version, packed in rows:
        unpacked = Experience.deserialize(packed)
        advantages = None if unpacked.advantages is None else unpacked.advantages.flatten().tolist()
        found.append(
            {
                "task_id": task_id,
                "run_id": run_id,
                "msg_id": msg_id,
                "reward": reward,
                "model_version": version,
                "advantage": advantages[0] if advantages else None,
                "response_tokens": unpacked.tokens.numel() - unpacked.prompt_length,
            }
        )
    return found


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # a service that was killed leaves no zombie
    services: list[int] = []
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "serve":
            services.append(forked(order))
            answer: dict[str, Any] = {"pid": services[-1]}
        elif order["do"] == "run":
            answer = {"printed": ran(order)}
        else:
            answer = {"experiences": experiences(Path(order["database"]), order["table"])}
        print(json.dumps(answer), flush=True)
    for pid in services:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
