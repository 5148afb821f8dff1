"""One sidecar, its halves apart, with its production model and its Explorer, and agents that ask at a steady rate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from bench.load import LoadFailed
from bench.machine import Cores
from bench.processes import Process, Unavailable, free_port
from bench.steady import Asked, Steady, open_loop
from soak import asked
from soak.watched import processes

_BENCHMARKS = Path(__file__).parents[1]
_PATHS = {"PYTHONPATH": os.pathsep.join([str(_BENCHMARKS), os.environ.get("PYTHONPATH", "")])}
_START = 60.0
"""Seconds that the sidecar may take to start, on a machine that is busy."""


def chat(number: int) -> Asked:
    """A chat of 2 KB and the body of production's answer to it."""
    return asked.request(asked.Asked("answer", number)), asked.answer(number)


@dataclass
class Rig:
    """Everything that runs for one measurement.

    Attributes:
        disk: folder of the store.
        processes: gets what is started, to be ended by the caller.
        log_pipe: a FIFO that the training side logs to instead of a file.
    """

    folder: Path
    disk: Path
    cores: Cores
    processes: list[Process]
    log_pipe: Path | None = None
    port: int = field(default_factory=free_port)

    def start(self) -> None:
        """Start everything, and wait until the training side is ready.

        Raises:
            Unavailable: something does not start.
        """
        production, explorer = free_port(), free_port()
        self._start("production", [sys.executable, "-m", "soak.production", str(production)]).listen(production)
        self._start("explorer", [sys.executable, str(_BENCHMARKS / "explorer_stub.py"), str(explorer)]).listen(explorer)
        self.config = self.folder / "sidecar.yaml"
        self.config.write_text(
            yaml.safe_dump(
                {
                    "listen": f"127.0.0.1:{self.port}",
                    "proxy": {"sockets": str(self.folder / "sockets")},
                    "production": {"base_url": f"http://127.0.0.1:{production}/v1"},
                    "explorer": {"base_url": f"http://127.0.0.1:{explorer}"},
                    "store": {"url": f"sqlite+aiosqlite:///{self.disk}/slipstream.db"},
                    "selection": {"any": [{"explicit_mark": {}}, {"sampling": {"rate": 0.1}}]},
                    "runs": {"repeat_time": 2, "timeout": "5s"},
                    "rewards": {"calculators": ["agreement", "format"]},
                    "commit": {"interval": "2s"},
                    "log": {"level": "warning"},
                }
            )
        )
        self._proxy = self._start("proxy", self._slipstream("proxy"), sidecar=True)
        self.start_training()
        self._ready()

    def start_training(self) -> None:
        """Start the training side, in the place of one that has ended."""
        command = self._slipstream("training")
        if self.log_pipe is not None:
            command = ["sh", "-c", 'exec "$@" 2> "$0"', str(self.log_pipe), *command]
        self._training = self._start("training", command, sidecar=True)

    def end_training(self) -> None:
        """End it in order, with all of its processes."""
        self._training.end()

    def kill_training(self) -> None:
        """`kill -9` of all its processes."""
        for pid in self._training.tree():
            os.kill(pid, signal.SIGKILL)
        self._training.end()

    def upgrade(self) -> None:
        """Have what runs replaced, in place.

        Raises:
            subprocess.CalledProcessError: it was not.
        """
        environment = {**os.environ, **_PATHS}
        subprocess.run(self._slipstream("upgrade"), env=environment, check=True, capture_output=True, timeout=60)

    def _slipstream(self, command: str) -> list[str]:
        return [sys.executable, "-m", "slipstream", command, "--config", str(self.config)]

    def _start(self, name: str, command: list[str], *, sidecar: bool = False) -> Process:
        cores = self.cores.proxy if sidecar else self.cores.others
        process = Process(command, cores, self.folder / f"{name}.log", _PATHS)
        self.processes.append(process)
        return process

    def _ready(self) -> None:
        deadline = time.monotonic() + _START
        while not self.ready():
            if self._training.ended or time.monotonic() > deadline:
                raise Unavailable(f"the sidecar is not ready: {self._proxy.said()}; {self._training.said()}")
            time.sleep(0.05)

    def ready(self) -> bool:
        """Return whether the training side answers that it is ready."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def training(self) -> int | None:
        """The id of the training side's process, if there is one just now."""
        return processes(self._training.pid).get("training")

    def send(self, body: bytes) -> None:
        """Send a chat that is selected, and read its whole answer, whatever it is."""
        posted = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", body)
        posted.add_header("content-type", "application/json")
        posted.add_header("x-slipstream-mark", "selected")
        with urllib.request.urlopen(posted, timeout=30) as answer:
            answer.read()

    def agents(self, executor: Executor, rate: float, requests: int) -> Steady:
        """Let agents ask, from a process of their own."""
        seconds = requests / rate
        try:
            return executor.submit(open_loop, self.port, rate, seconds, chat).result(seconds + 60)
        except LoadFailed:  # almost nothing was answered
            return Steady(asked=requests, broken=requests)

    def end(self) -> None:
        """End all that was started, in order."""
        for process in reversed(self.processes):
            process.end()
        self.processes.clear()
