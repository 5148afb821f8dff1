"""A soak from its beginning to its end: how much the sidecar carries, then four fifths of that for the whole time."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import split_cores
from bench.processes import Process, ending

from soak.faults import Faults
from soak.rig import Rig, Second
from soak.watched import Held, held, said, store_bytes

_EACH = 5.0
"""Seconds between two looks."""
_WAITING = 1000
"""Calls that may wait for the store while the capacity is measured: less than a second's."""
_LEAST = 50.0
"""Chats a second, on a machine that is too busy for anything to be measured."""
_LOOKS = 6
"""At least, at what waits and what is stored."""
_FIRST_RATE, _FASTER, _SLOWER = 800.0, 1.06, 0.94
_CLOSED = 8.0
"""Seconds after the agents' end, for what is kept a while to be let go of."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for.

    Attributes:
        seconds: of the load.
        warm: seconds of it before the part that is judged.
        capacity: seconds in which the capacity is found.
        share: of the capacity, which the load is.
        retention: seconds.
        kills: seconds from the beginning of the load at which the training side is killed.
    """

    seconds: float
    streams: int
    capacity: float
    share: float
    seed: int

    @property
    def warm(self) -> float:
        return self.seconds / 3

    @property
    def retention(self) -> float:
        return self.seconds / 10

    @property
    def kills(self) -> list[float]:
        """Long before what is judged, so that a process of which the memory still settles is no part of that."""
        return [self.seconds * part for part in (0.05, 0.1)]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the sidecar: Unix time, its processes, its own figures, bytes of its store."""

    at: float
    held: dict[str, Held]
    said: dict[str, float]
    store: int


@dataclass
class Measured:
    """What was measured. `before` and `after` are the processes without any load; `began` is when the load began."""

    plan: Plan
    capacity: float = 0.0
    rate: float = 0.0
    began: float = 0.0
    ended: float = 0.0
    before: dict[str, Held] = field(default_factory=dict)
    after: dict[str, Held] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    seconds: list[Second] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    killed: list[float] = field(default_factory=list)

    @property
    def judged(self) -> list[Look]:
        """The looks after the warming up."""
        return [look for look in self.looks if look.at >= self.began + self.plan.warm]

    @property
    def counts(self) -> Counter[str]:
        """What came of all that agents asked under load."""
        total: Counter[str] = Counter()
        for second in self.seconds:
            total.update(second.counts)
        return total

    def total(self, metric: str) -> float:
        """How much a counter of the sidecar's rose under load, over its restarts."""
        values = [look.said[metric] for look in self.looks if metric in look.said]
        return sum(now - then if now >= then else now for then, now in itertools.pairwise(values))


def measure(plan: Plan) -> Measured:
    """Run it.

    Raises:
        Unavailable: something does not start, or streams do not open.
    """
    cores = split_cores()
    os.sched_setaffinity(0, cores.others)
    processes: list[Process] = []
    try:
        with tempfile.TemporaryDirectory(prefix="slipstream-soak-") as name, ending(processes):
            return asyncio.run(_measure(plan, Rig(Path(name), cores, processes, plan.seed, plan.retention)))
    finally:
        os.sched_setaffinity(0, cores.both)


async def _measure(plan: Plan, rig: Rig) -> Measured:
    measured = Measured(plan)
    await rig.start()
    try:
        faults = Faults(rig.start_explorer, rig.sidecar.pid, rig.store)
        measured.before = (await _look(rig)).held
        rig.order(f"streams {plan.streams}")
        await rig.streams_open(plan.streams)
        measured.capacity = await _capacity(rig, plan.capacity)
        measured.rate = plan.share * measured.capacity
        _say(f"{measured.capacity:.0f} chats a second are answered and stored; {measured.rate:.0f} from now on")
        rig.order(f"rate {measured.rate}")
        measured.began = time.time()
        breaking = asyncio.create_task(faults.run(plan.kills))
        while (passed := time.time() - measured.began) < plan.seconds:
            await asyncio.sleep(_EACH - passed % _EACH)
            measured.looks.append(await _look(rig))
            _progress(measured, rig)
        measured.ended = time.time()
        measured.seconds = [each for each in rig.seconds if each.at > measured.began]
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        await rig.stop()
        await asyncio.sleep(_CLOSED)
        measured.after = (await _look(rig)).held
        measured.faults, measured.killed = faults.done, faults.killed
    finally:
        await rig.stop()
    return measured


async def _capacity(rig: Rig, seconds: float) -> float:
    """Chats a second that are answered and stored, with everything else going on.

    A loop that is closed over the store: agents ask faster while few calls wait to be stored, and slower while many do.
    The second half of the time counts.
    """
    rate, stored = _FIRST_RATE, list[tuple[float, float]]()
    ends = time.time() + seconds
    while time.time() < ends or len(stored) < _LOOKS:
        rig.order(f"rate {rate}")
        await asyncio.sleep(1)
        now = await asyncio.to_thread(said, rig.port)
        stored.append((time.time(), now.get("slipstream_calls_captured_total", 0.0)))
        rate *= _FASTER if now.get("slipstream_capture_queue", _WAITING) < _WAITING else _SLOWER
    (then, before), (last, after) = stored[len(stored) // 2], stored[-1]
    return max(_LEAST, (after - before) / (last - then))


async def _look(rig: Rig) -> Look:
    figures = await asyncio.to_thread(said, rig.port)
    return Look(time.time(), held(rig.sidecar.pid, figures), figures, store_bytes(rig.store))


def _progress(measured: Measured, rig: Rig) -> None:
    if len(measured.looks) % 12:
        return
    look, last = measured.looks[-1], rig.seconds[-1]
    memory = ", ".join(f"{name} {each.rss / 2**20:.0f} MiB" for name, each in look.held.items())
    unexpected = sum(count for name, count in rig.seen(measured.began).items() if name.startswith("unexpected"))
    _say(
        f"{(look.at - measured.began) / 60:.0f} min: {memory}, store {look.store / 2**20:.0f} MiB, {last.streams} "
        f"streams, p99 {(last.p99 or 0) * 1000:.1f} ms, {unexpected} unexpected"
    )


def _say(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
