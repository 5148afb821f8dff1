"""The Ray that a service of Trinity-RFT runs on: one that is there, or one of its own on this machine's loopback."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import IO, Any

import structlog

from slipstream.errors import ConfigError, SlipstreamError
from slipstream.trinity.process import Program

log = structlog.get_logger(__name__)

_OWN = "127.0.0.1:6379"  # Ray's usual port; the health check of docker-compose.yml connects there
_START_WITHIN = 120.0  # seconds
_ANSWER_WITHIN = 60.0
_POLL = 0.5
_STOP_GRACE = 45.0  # it gives its nodes 30 s

_CPUS, _CPUS_PER_GPU = 8, 4
"""Ray's CPUs are places, not cores. Each GPU of verl asks for three, each actor for one; where there are too few,
Trinity waits for ever."""


def find_program(name: str) -> str:
    """A command of the extra: beside this Python, or on PATH.

    Raises:
        SlipstreamError: it is not installed.
    """
    found = shutil.which(str(Path(sys.executable).with_name(name))) or shutil.which(name)
    if found is None:
        raise SlipstreamError(
            f"no `{name}` on PATH: this command needs Trinity-RFT; in a clone, and an environment of its own:"
            " pip install --no-deps -r deploy/docker/constraints-trinity.txt (docs/trinity.md)"
        )
    return found


@contextlib.contextmanager
def cluster(
    document: Mapping[str, Any], environment: Mapping[str, str], stop: Event, output: IO[bytes] | None = None
) -> Iterator[dict[str, str]]:
    """Yields the environment in which Trinity finds its Ray. What was started for it is stopped at the end.

    Args:
        stop: set when the start is not to be waited for any longer.
        output: where a Ray that is started writes; None for where we do.

    Raises:
        ConfigError: the cluster that the file asks for cannot be started here.
        SlipstreamError: no Ray at a given address, one with too few free GPUs, or one that did not start.
    """
    ray = find_program("ray")
    wanted = document.get("cluster") or {}
    named = wanted.get("ray_address")
    address = environment.get("RAY_ADDRESS") or (named if named != "auto" else None)
    surroundings = {**environment, "RAY_ADDRESS": address} if address else dict(environment)
    status = _status(ray, surroundings)
    if status is None and address:
        raise SlipstreamError(f"no Ray answers at {address}, which RAY_ADDRESS or cluster.ray_address names")
    if status is not None:
        _refuse_too_few(status, wanted)
        yield surroundings
        return
    nodes, gpus = wanted.get("node_num") or 1, wanted.get("gpu_per_node")
    if nodes != 1:
        raise ConfigError(
            f"cluster.node_num: expected 1 where no Ray runs, found {nodes}; for several nodes start Ray on each of"
            " them and give its address as RAY_ADDRESS"
        )
    host, _, port = _OWN.partition(":")
    command = [ray, "start", "--head", "--block", f"--node-ip-address={host}", f"--port={port}"]
    command += ["--include-dashboard=false", "--disable-usage-stats"]
    command.append(f"--num-cpus={max(os.cpu_count() or 1, _CPUS + _CPUS_PER_GPU * (gpus or 0))}")
    whole = (*command, f"--num-gpus={gpus}") if gpus else command
    environment = {**_token(environment), **environment}
    with Program(whole, environment, _STOP_GRACE, output=output) as own:
        for _ in range(int(_START_WITHIN / _POLL)):
            if stop.is_set() or own.ended(within=_POLL) is not None or _healthy(ray, environment):
                break
        if own.ended() is not None or not (stop.is_set() or _healthy(ray, environment)):
            raise SlipstreamError(f"Ray did not start: {shlex.join(command)}")
        log.info("Ray started for this service alone", address=_OWN, gpus=gpus)
        yield {**environment, "RAY_ADDRESS": _OWN}


def _token(environment: Mapping[str, str]) -> dict[str, str]:
    """The secret by which the programs of our own Ray know each other. `ray start --head` makes none by itself, and
    any user of this machine who reaches a Ray without one can run programs as its user."""
    return {} if "RAY_AUTH_MODE" in environment else {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _status(ray: str, environment: Mapping[str, str]) -> str | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        run = subprocess.run(  # noqa: S603 - the user's own Ray
            [ray, "status"], env=environment, capture_output=True, text=True, timeout=_ANSWER_WITHIN, check=False
        )
        return run.stdout if run.returncode == 0 else None
    return None


def _healthy(ray: str, environment: Mapping[str, str]) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        command = [ray, "health-check", "--address", _OWN]
        run = subprocess.run(command, env=environment, capture_output=True, timeout=_ANSWER_WITHIN, check=False)  # noqa: S603
        return run.returncode == 0
    return False


def _refuse_too_few(status: str, wanted: Mapping[str, Any]) -> None:
    """Trinity would wait for ever, without a word, for GPUs that are not there."""
    needed = (wanted.get("node_num") or 1) * (wanted.get("gpu_per_node") or 0)
    usage = {kind: (float(used), float(total)) for used, total, kind in re.findall(r"([\d.]+)/([\d.]+) (\wPU)", status)}
    used, total = usage.get("GPU", (0.0, 0.0))
    if "CPU" in usage and total - used < needed:
        raise SlipstreamError(
            f"the Ray that runs here has {total - used:g} of its {total:g} GPUs free, and cluster asks for {needed}:"
            " start Ray with the GPUs of all its services (ray start --head --num-gpus=N), or end what holds them"
        )
