"""The engine on vLLM: a server of its own in another environment, asked over a Unix socket.

vLLM and TRL want different versions of torch and fastapi, so that they do not fit into one environment. What is used of
vLLM 0.28: `POST /inference/v1/generate` (token ids in, token ids and log probabilities out), and of its development
mode, which only this socket offers, `collective_rpc` for new weights and `reset_prefix_cache`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import structlog
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from slipstream.embedded.config import EngineConfig
from slipstream.embedded.device import device, limits
from slipstream.embedded.engines.engine import (
    MAX_WAITING,
    Engine,
    EngineBusy,
    EngineError,
    EngineStopped,
    Sampled,
    Sampling,
    Step,
)
from slipstream.embedded.engines.weights import checked_weights
from slipstream.errors import ConfigError

log = structlog.get_logger(__name__)

_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the Trainer uses the same cores
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_START_SECONDS = 900.0  # of a large model from a slow disk, compiled for a GPU
_STOP_SECONDS = 10.0
_ANSWER_SECONDS = 3600.0  # between two tokens, which includes the wait for a place among the running ones
_CONTROL_SECONDS = 600.0  # for the weights of a version
_LOG_TAIL = 2000  # characters of vLLM's log in an error


class VllmEngine(Engine):
    """Serves a model directory by a vLLM server, which is started here and ends with the engine.

    Args:
        command: starts the server, without its socket.
        skeleton: the model on the device `meta`, for the names and shapes of its weights.
        eos_ids: the tokens that end a response.
        seed: of the requests that bring no seed.
        log_file: for what the server prints.

    Raises:
        ConfigError: the server cannot be started, or ends instead of becoming ready.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        skeleton: PreTrainedModel,
        eos_ids: Sequence[int],
        temperature: float,
        seed: int,
        log_file: Path,
    ) -> None:
        self._directory = directory
        self._skeleton = skeleton
        self._eos_ids = list(eos_ids)
        self._temperature = temperature
        self._seeds = random.Random(seed)  # noqa: S311 - sampling, not secrets
        self._log_file = log_file
        self._folder = tempfile.TemporaryDirectory(prefix="slipstream-vllm-")
        path = str(Path(self._folder.name, "vllm.sock"))
        try:
            self._process = _start([*command, "--uds", path], log_file)
        except BaseException:
            self._folder.cleanup()
            raise
        self._stopping = False
        try:
            self._wait_until_ready(path)
        except BaseException:
            self.stop()
            raise
        self._rows = limits(device()).rows
        kept = httpx.Limits(max_connections=None, max_keepalive_connections=self._rows)
        transport = httpx.AsyncHTTPTransport(uds=path, limits=kept)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://vllm", timeout=_ANSWER_SECONDS)
        self._running = 0
        self._waiting = 0
        self._open = asyncio.Event()  # closed while new weights wait
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.check_room(1)
        body = {"token_ids": list(prompt_ids), "sampling_params": self._parameters(sampling), "stream": True}
        async with self._admitted():
            try:
                async with self._client.stream("POST", "/inference/v1/generate", json=body) as response:
                    if response.status_code != httpx.codes.OK:
                        raise EngineError(f"vLLM answered {response.status_code}: {(await response.aread())[:500]!r}")
                    async for line in response.aiter_lines():
                        for step in _steps(line, sampling.top_logprobs, self.version):
                            yield step
                            if step.finish_reason is not None:
                                return
            except httpx.TransportError as error:
                raise self._gone() from error
            raise EngineError("vLLM ended the answer without a reason")

    def check_room(self, choices: int) -> None:
        waiting = self._waiting + max(self._running - self._rows, 0)
        if waiting + choices > MAX_WAITING:
            raise EngineBusy(waiting)

    async def stage(self, version: int, directory: Path) -> None:
        await asyncio.to_thread(self._check, version, directory)
        self._open.clear()
        try:
            await self._idle.wait()
            await self._load(directory)
            self.version, self._directory = version, directory
            log.info("new version in service", version=version)
        except EngineError:
            await self._load(self._directory)  # a part of the new weights may be in place
            raise
        finally:
            self._open.set()

    def stop(self) -> None:
        self._stopping = True
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    @contextlib.asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        """Waits while new weights wait, which wait for those that are admitted."""
        self._waiting += 1
        try:
            while not self._open.is_set():
                await self._open.wait()
        finally:
            self._waiting -= 1
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()

    def _parameters(self, sampling: Sampling) -> dict[str, Any]:
        return {
            "max_tokens": sampling.max_tokens,
            "temperature": self._temperature,
            "top_p": sampling.top_p,
            "logprobs": sampling.top_logprobs,
            "seed": self._seeds.getrandbits(62) if sampling.seed is None else sampling.seed,
            "stop_token_ids": self._eos_ids,
            "detokenize": False,
        }

    def _check(self, version: int, directory: Path) -> None:
        """vLLM's engine ends at weights that are not its model's, and would serve those that are not finite."""
        for _ in checked_weights(version, directory, self._skeleton):
            pass

    async def _load(self, directory: Path) -> None:
        """Raises EngineError where vLLM does not take the weights."""
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        try:
            for path, body in (("/collective_rpc", reload), ("/reset_prefix_cache", None)):
                response = await self._client.post(path, json=body, timeout=_CONTROL_SECONDS)
                if response.is_error:
                    raise EngineError(f"vLLM did not load {directory}: {response.text[:500]}")
        except httpx.TransportError as error:
            raise self._gone() from error

    def _gone(self) -> EngineError:
        if self._stopping:
            return EngineStopped("the Explorer is shutting down")
        return EngineStopped(f"vLLM does not answer; its log: {self._log_file}")

    def _wait_until_ready(self, path: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self.alive and time.monotonic() < deadline:
            with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                probe.connect(path)
                return
            time.sleep(0.2)
        tail = self._log_file.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        raise ConfigError(f"vLLM did not start; the end of {self._log_file}:\n{tail}")


def load_vllm_engine(config: EngineConfig, directory: Path, eos_ids: Sequence[int], python: Path) -> VllmEngine:
    """Start version 0, the configuration's base model.

    Args:
        python: of an environment with vLLM 0.28.

    Raises:
        ConfigError: vLLM does not start.
    """
    rollout = config.explorer.rollout_model
    command = [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(directory)),
        *("--dtype", rollout.dtype, "--max-model-len", str(config.model.context_length)),
        *("--max-num-seqs", str(limits(device()).rows), "--tensor-parallel-size", str(rollout.tensor_parallel_size)),
        *("--gpu-memory-utilization", str(rollout.gpu_memory_utilization)),
        *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs", "--max-logprobs", "20"),
        *("--disable-log-stats", "--disable-uvicorn-access-log"),
        *(["--enforce-eager"] if rollout.enforce_eager else []),
    ]
    model = AutoConfig.from_pretrained(directory, local_files_only=True)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(model)  # type: ignore[no-untyped-call]
    log_file = config.job_dir / "log" / "vllm.log"
    return VllmEngine(command, directory, skeleton, eos_ids, config.model.temperature, rollout.seed, log_file)


def _start(command: Sequence[str], log_file: Path) -> subprocess.Popen[bytes]:
    """The server in our process group, which a supervisor ends as a whole."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    log.info("starting vLLM", python=command[0], log=str(log_file))
    environment = os.environ | _ENVIRONMENT
    try:
        with log_file.open("wb") as out:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # noqa: S603
    except OSError as error:
        expected = "--vllm: expected the Python of an environment with vLLM"
        raise ConfigError(f"{expected}, found {command[0]}: {error}") from error


def _steps(line: str, top_logprobs: int, version: int) -> Iterator[Step]:
    """The tokens of one server-sent event."""
    if not line.startswith("data: {"):
        return
    event = json.loads(line.removeprefix("data: "))
    if "error" in event:
        raise EngineError(f"vLLM: {event['error'].get('message', event['error'])}")
    for choice in event["choices"]:
        entries = choice["logprobs"]["content"] if choice["token_ids"] else []
        for place, entry in enumerate(entries, start=1):
            top = tuple((_id(each), each["logprob"]) for each in entry["top_logprobs"][:top_logprobs])
            reason = choice["finish_reason"] if place == len(entries) else None
            yield Step(Sampled(_id(entry), entry["logprob"], top), reason, version)


def _id(token: dict[str, Any]) -> int:
    """vLLM writes tokens as `token_id:17` here."""
    return int(token["token"].removeprefix("token_id:"))
