"""The embedded engine, started for one tuning: `slipstream explorer` and `slipstream trainer` on files written here."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import httpx

from slipstream_client.tuner.config import TunerModelConfig
from slipstream_client.tuner.errors import TunerError
from slipstream_client.tuner.plan import Plan
from slipstream_client.tuner.waiting import Wait
from slipstream_client.tuner.yaml_tree import write

_READY_WITHIN = 600.0  # seconds: a large model takes its time to load
_GRACE = 60.0  # seconds between SIGTERM and SIGKILL: a training step ends first
_LOOK_EVERY = 0.5  # seconds, of the Explorer for a new version
_TAIL = 2000  # characters of the log that an error shows
_KEPT = 5  # versions; each is as large as the model


def installed() -> bool:
    """Return whether `slipstream-sidecar[embedded]` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("slipstream", "trl"))


@dataclass(frozen=True)
class LocalEngine:
    """Engine that was started.

    Attributes:
        url: of the Explorer of the policy model.
        auxiliary: of the Explorers of frozen models, by the auxiliary model's name.
        models: what those call their models, by the same names.
        children: the programs, by what they are.
        log: what they write.
    """

    url: str
    auxiliary: Mapping[str, str]
    models: Mapping[str, str]
    children: Mapping[str, subprocess.Popen[bytes]]
    log: Path

    def check(self) -> None:
        """Raises:
        TunerError: one of the programs has ended; the message has the last that it wrote.
        """
        for name, child in self.children.items():
            if child.poll() is not None:
                raise TunerError(f"the local engine's {name} ended with {child.returncode}:\n{_tail(self.log)}")


@contextlib.contextmanager
def local_engine(
    plan: Plan, frozen: Mapping[str, TunerModelConfig], seed: int | None, lock: int
) -> Iterator[LocalEngine]:
    """Runs an Explorer and a Trainer in the experiment's folder, and an Explorer for each different frozen model.

    Args:
        frozen: models that are served as they are, by name.
        lock: a file descriptor that the programs hold for as long as they run.

    Raises:
        TunerError: a program did not start; the message has what it wrote.
    """
    assert plan.model is not None  # `remote` has seen to it
    configs = plan.folder / "engine"
    configs.mkdir(exist_ok=True)
    (port,) = _free_ports(1)
    files = {"explorer": _explorer(plan, plan.model, port, seed), "trainer": _trainer(plan, plan.model)}
    urls = {"explorer": f"http://127.0.0.1:{port}"}
    serving: dict[str, str] = {}
    for name, model in frozen.items():
        served = f"explorer of {model.model_path} (length {model.max_model_len}, temperature {model.temperature:g})"
        if served not in files:
            (port,) = _free_ports(1)
            files[served] = _frozen(plan, model, port, f"model-{len(files) - 2}", seed)
            urls[served] = f"http://127.0.0.1:{port}"
        serving[name] = urls[served]
    log = plan.folder / "engine.log"
    children: dict[str, subprocess.Popen[bytes]] = {}
    models = {name: str(_model(model)["model_path"]) for name, model in frozen.items()}
    engine = LocalEngine(urls["explorer"], serving, models, children, log)
    with _guard() as guard, log.open("ab") as out:
        try:
            for number, (name, document) in enumerate(files.items()):
                path = configs / ("trainer.yaml" if name == "trainer" else f"explorer{number or ''}.yaml")
                write(path, "# Written by tune() at each start.\n", document)
                children[name] = _started("trainer" if name == "trainer" else "explorer", path, out, lock)
                guard.write(b"+%d\n" % children[name].pid)
            _wait_until_ready(engine, urls.values())
            yield engine
        finally:
            for name in reversed(children):  # the Trainer before the Explorers, which it publishes to
                _stop(children[name])
                guard.write(b"-%d\n" % children[name].pid)


def _explorer(plan: Plan, model: TunerModelConfig, port: int, seed: int | None) -> dict[str, Any]:
    return _merged(plan.document, _shared(plan, model), {"mode": "serve", "explorer": _serving(port, seed)})


def _trainer(plan: Plan, model: TunerModelConfig) -> dict[str, Any]:
    algorithm = plan.algorithm
    kept = {"trainer": {"max_checkpoints_to_keep": _KEPT}}
    return _merged(
        kept,
        plan.document,
        _shared(plan, model),
        {
            "mode": "train",
            "algorithm": {"optimizer": {"lr": algorithm.learning_rate}},
            "buffer": {"train_batch_size": algorithm.batch_size * algorithm.group_size},
            "trainer": {"step_per_commit": True, "save_interval": algorithm.save_interval_steps},
            "synchronizer": {"sync_interval": 1},
        },
    )


def _shared(plan: Plan, model: TunerModelConfig) -> dict[str, Any]:
    return {
        "project": plan.project,
        "group": "",
        "name": plan.experiment,
        "checkpoint_root_dir": str(plan.root),
        "model": _model(model),
        "algorithm": {"algorithm_type": plan.algorithm.algorithm_type, "repeat_times": plan.algorithm.group_size},
    }


def _frozen(plan: Plan, model: TunerModelConfig, port: int, name: str, seed: int | None) -> dict[str, Any]:
    """An Explorer whose folder no Trainer writes to."""
    return {
        "mode": "serve",
        "project": "auxiliary",
        "name": name,
        "checkpoint_root_dir": str(plan.folder),
        "model": _model(model),
        "explorer": _serving(port, seed),
    }


def model_directory(model: TunerModelConfig, field: str = "model") -> Path:
    """Return the directory of its files: those of a name on the Hugging Face Hub are downloaded, or taken from its
    cache.

    Raises:
        ValueError: there are none; `field` is named.
    """
    here = Path(model.model_path).expanduser()
    if here.is_dir():
        return here.absolute()
    try:
        return _downloaded(model.model_path)
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise ValueError(
            f"{field}.model_path: no directory, and no model that can be had from the Hugging Face Hub: "
            f"{model.model_path!r} ({error})"
        ) from error


@cache
def _downloaded(name: str) -> Path:
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]))


def _model(model: TunerModelConfig) -> dict[str, Any]:
    return {
        "model_path": str(model_directory(model)),
        "max_model_len": model.max_model_len,
        "max_response_tokens": min(model.max_tokens, model.max_model_len - 1),
        "temperature": model.temperature,
    }


def _serving(port: int, seed: int | None) -> dict[str, Any]:
    rollout = {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
    return {
        "listen_address": "127.0.0.1",
        "proxy_port": port,
        "service_status_check_interval": _LOOK_EVERY,
        "rollout_model": rollout if seed is None else {**rollout, "seed": abs(seed)},
    }


def _merged(*documents: Mapping[str, Any]) -> dict[str, Any]:
    """Later ones count, key by key."""
    merged: dict[str, Any] = {}
    for document in documents:
        for name, value in document.items():
            before = merged.get(name)
            if isinstance(before, dict) and isinstance(value, dict):
                merged[name] = _merged(before, value)
            else:
                merged[name] = copy.deepcopy(value)
    return merged


def _started(command: str, config: Path, out: IO[bytes], lock: int) -> subprocess.Popen[bytes]:
    threads = str(os.cpu_count() or 1)  # Explorer and Trainer work in turns
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-uP", "-m", "slipstream", "--log-format", "console", command, "--config", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,  # Ctrl-C is for the tuner, which stops them in their order
        pass_fds=(lock,),
        env={"OMP_NUM_THREADS": threads, **os.environ},
    )


def _wait_until_ready(engine: LocalEngine, urls: Iterable[str]) -> None:
    deadline = time.monotonic() + _READY_WITHIN
    with httpx.Client(timeout=5, trust_env=False) as client:
        for url in urls:
            wait = Wait(f"the local engine at {url}, which logs to {engine.log}")
            while not _answers(client, url):
                engine.check()
                wait.goes_on()
                if time.monotonic() > deadline:
                    raise TunerError(f"the local engine was not ready within {_READY_WITHIN:g} s:\n{_tail(engine.log)}")
                time.sleep(0.1)


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # it, where it would not end, and whatever it left
        child.wait()


@contextlib.contextmanager
def _guard() -> Iterator[IO[bytes]]:
    """A pipe to what ends the programs when this process is killed and cannot."""
    guard = subprocess.Popen(
        [sys.executable, "-P", "-m", "slipstream.local.guard"], stdin=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    assert guard.stdin is not None  # asked for above
    with guard:
        yield guard.stdin


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _TAIL, 0))
        return file.read().decode(errors="replace")
