"""A target that runs: started and waited for, woken for its turn, and asked what it has used."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from bench.counters import Counters, counters, training_side
from bench.load import LoadFailed
from bench.machine import Cores, Memory, cpu_seconds, memory
from bench.processes import Process, Unavailable, free_port
from bench.steady import open_loop
from bench.targets import Place, Target

_START = 120.0
"""Seconds that a target may take to start; LiteLLM takes some 20 on a busy core."""

_LOOK, _IDLE = 0.1, 0.1
"""Seconds for which a target is looked at, and the share of a core below which it counts as idle."""
PATIENCE = 12.0
"""Seconds that a target may work on after the load has ended."""


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of all processes of a target, and of those that are the training side.

    The second is 0 where there is none, and where it is the same process as the proxy.
    """

    all: float
    training: float


class Running:
    """One target and its processes; for `direct` there are none."""

    def __init__(self, target: Target, port: int, process: Process | None) -> None:
        self.target = target
        self.port = port
        self.process = process

    def begin(self) -> None:
        """It is its turn."""
        if self.process:
            self.process.go_on()

    def rest(self) -> None:
        """Its turn is over; what it has to store is stored first."""
        if self.process:
            self.settle()
            self.process.hold()

    def settle(self) -> tuple[Cpu, bool]:
        """Wait until it does nothing any more and no call waits to be stored.

        Returns: what it had spent by then, without what it costs to ask it; and False where it took too long.
        """
        deadline = time.monotonic() + PATIENCE
        now = self.cpu()
        while self.process:
            before = now
            time.sleep(_LOOK)
            now = self.cpu()
            if now.all - before.all < _IDLE * _LOOK and not self.counters().waiting:
                return now, True
            if time.monotonic() > deadline:
                return now, False
        return now, True

    def counters(self) -> Counters:
        return counters(self.port) if self.target.capture is not None else Counters()

    def cpu(self) -> Cpu:
        """What its processes have spent since they were started."""
        pids = self.process.tree() if self.process else []
        training = training_side(pids) if self.target.capture is not None else set()
        return Cpu(cpu_seconds(pids), cpu_seconds(training if training != set(pids) else ()))

    def stored_since(self, then: Counters) -> float | None:
        """The share of the calls that were to be captured since then which is stored; None where none was."""
        return self.counters().since(then).share_stored(self.target.capture or 0.0)

    def memory(self) -> Memory:
        return memory(self.process.tree()) if self.process else Memory()


def start(target: Target, folder: Path, upstream: int, cores: Cores, processes: list[Process]) -> Running:
    """Start a target on the proxy's core, and wait until it hands an answer of the model on.

    Args:
        processes: gets the target's process, as soon as there is one.

    Raises:
        Unavailable: it cannot be started, or does not work.
    """
    if target.start is None:
        return Running(target, upstream, None)
    place = Place(folder / target.key, free_port(), upstream)
    place.folder.mkdir()
    command = target.start(place)
    process = Process(command.arguments, cores.proxy, place.folder / "output.log", command.env)
    processes.append(process)
    deadline = time.monotonic() + _START
    while True:
        try:
            open_loop(place.port, 10, 0.2)
            break
        except (LoadFailed, OSError) as error:
            if process.ended:
                raise Unavailable(f"it ended: {process.said()}") from error
            if time.monotonic() > deadline:
                process.end()
                raise Unavailable(f"no good answer in {_START:.0f} s ({error}): {process.said()}") from error
            time.sleep(0.2)
    return Running(target, place.port, process)
