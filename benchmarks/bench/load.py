"""Load as fast as it goes: wrk, with a number of connections that ask again as soon as they are answered."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.request import SLOT, chat

_SCRIPT = Path(__file__).with_name("wrk.lua")
_TIMEOUT = 10
"""Seconds that an answer may take: a slow peer at 256 connections needs some."""

_salts = itertools.count(random.randrange(0x800000))
"""Two runs of the benchmark against one store must not ask the same."""


class LoadFailed(Exception):
    """The load did not run, or not one request was answered well."""


@dataclass(frozen=True)
class Load:
    """What wrk saw. Times in seconds; `refused` answers had a status of 400 or more and are among `requests`."""

    requests: int
    seconds: float
    p50: float
    p99: float
    refused: int
    failed: int

    @property
    def answered(self) -> int:
        """Requests that got a good answer."""
        return self.requests - self.refused

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.answered / self.seconds


def parse(printed: str) -> Load:
    """Read the line of JSON that ends wrk's output.

    Raises:
        LoadFailed: there is none.
    """
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            said = json.loads(line)
            return Load(
                said["requests"],
                said["microseconds"] / 1e6,
                said["p50"] / 1e6,
                said["p99"] / 1e6,
                said["refused"],
                said["failed"],
            )
    raise LoadFailed(f"wrk did not end well: {printed.strip()[-300:]}")


def closed_loop(port: int, connections: int, seconds: float, folder: Path) -> Load:
    """Ask over `connections` for about `seconds` (whole ones, at least 1).

    Raises:
        LoadFailed: wrk failed, or nothing was answered well.
    """
    asked = folder / "request.http"
    asked.write_bytes(chat())
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", f"--timeout={_TIMEOUT}s"]
    command += ["-s", str(_SCRIPT), f"http://127.0.0.1:{port}/v1/chat/completions"]
    command += ["--", str(asked), SLOT, str(next(_salts) & 0xFFFFFF)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    load = parse(ended.stdout + ended.stderr)
    if load.answered <= 0:
        raise LoadFailed(f"no good answer: {load.refused} of {load.requests} refused, {load.failed} failed")
    return load
