"""The measurement: every target in turn, several rounds, each measurement repeated while the machine is busy."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.load import LoadFailed, closed_loop
from bench.machine import Strangers
from bench.processes import Process
from bench.request import Api, conversation
from bench.results import Results
from bench.running import PATIENCE, Cpu, Running
from bench.steady import Asked, open_loop
from bench.streams import run_streams

T = TypeVar("T")

CONNECTIONS = (1, 32, 256)
RATES = (100, 1000)
LOW_RATE = 10
COST_RATES = (LOW_RATE, *RATES)
"""Requests a second at which the CPU of one is measured, which has a part of what is done from time to time."""
LONG, LONG_RATE = 60_000, 20
"""Bytes of the history that each request of a long conversation holds, and requests a second."""
_BUSY = 0.15
"""Cores' worth of other people's work from which on a measurement is repeated. The kernel's own threads take some."""
_REPEATS, _ALL_REPEATS = 2, 40
"""Repetitions of one measurement, and of all: a machine that is always busy makes no run endless."""
_HEADROOM = 0.95
"""A fixed rate above this share of a target's highest rate says nothing but that it does not keep up."""
_MOST_LATE = 0.02
"""Share of requests that may leave late before the report says so."""
_TURNS, _LONGEST = 3, 10.0
"""A connection should have so many turns in a measurement, also with a slow target, if that takes not too long."""


@dataclass(frozen=True)
class Plan:
    """How much is measured; times in seconds.

    Attributes:
        seconds: length of a measurement as fast as it goes; one at a fixed rate takes twice as long.
        slow_streams: how many are open at once, with an event a second.
        slow_events: events of each of them.
        minutes: that the whole may take about; no round begins that would not fit.
    """

    rounds: int
    seconds: float
    streams: int
    events: int
    slow_streams: int
    slow_events: int
    minutes: float


class Turns:
    """Runs measurements of targets one after the other, beside what belongs to the benchmark (`ours`)."""

    def __init__(self, plan: Plan, results: Results, ours: Sequence[Process], folder: Path) -> None:
        self.plan = plan
        self.results = results
        self.folder = folder
        self._ours = ours
        self._began = time.monotonic()
        self._most = _ALL_REPEATS if plan.rounds > 1 else 0

    def each_round(self, of: str, share: float) -> Iterator[int]:
        """Numbers of the rounds, from 0, as long as they fit into this share of the plan's minutes from the start."""
        began = time.monotonic()
        until = self._began + share * self.plan.minutes * 60
        for turn in range(self.plan.rounds):
            now = time.monotonic()
            if turn and now + (now - began) / turn > until:
                self.results.note(f"time was up after {turn} of {self.plan.rounds} rounds of {of}")
                return
            yield turn

    def quietly(self, what: str, measure: Callable[[], T]) -> T | None:
        """The measurement made while others used the least, of up to three; None where it failed."""
        best: tuple[float, T] | None = None
        for left in range(_REPEATS, -1, -1):
            strangers = Strangers(process.pid for process in self._ours)
            try:
                found = measure()
            except (LoadFailed, OSError) as error:
                self.results.note(f"{what}: {error}")
                return None
            busy = strangers.cores()
            if best is None or busy < best[0]:
                best = busy, found
            if busy <= _BUSY or not left or self.results.repeated >= self._most:
                break
            self.results.repeated += 1
        assert best is not None
        self.results.busy.append(best[0])
        print(f"  {what} ({best[0]:.2f} cores busy with other things)", file=sys.stderr, flush=True)
        return best[1]

    def warm(self, running: Running) -> None:
        """Have connections opened and code loaded.

        Raises:
            LoadFailed: it does not answer well.
        """
        closed_loop(running.port, 8, 1, self.folder)

    def _settled(self, running: Running) -> Cpu:
        """What a target has spent once it does nothing any more."""
        cpu, done = running.settle()
        if not done:
            self.results.note(
                f"{running.target.name}: still at work {PATIENCE:.0f} s after a load: its CPU is more than the table "
                "says, and what came next was slowed down"
            )
        return cpu

    def requests(self, running: Running, turn: int) -> None:
        """A target's turn in a round of requests."""
        running.begin()
        try:
            self.warm(running)
            for connections in CONNECTIONS:
                self.fast(running, turn, connections)
            for rate in RATES:
                self._steady(running, turn, rate)
            if not turn and running.target.compared:
                self._at_leisure(running)
        except (LoadFailed, OSError) as error:
            self.results.note(f"{running.target.name}: {error}")
        used = running.memory()
        self.results.add(running.target.key, "pss", turn, used.pss)
        self.results.add(running.target.key, "rss", turn, used.rss)
        running.rest()

    def fast(self, running: Running, turn: int, connections: int) -> None:
        """As many requests as go over so many connections; and what they cost, up to the last one stored."""
        key, add = running.target.key, self.results.add
        known = self.results.values(key, f"rate@{CONNECTIONS[0]}") or [float("inf")]
        seconds = max(self.plan.seconds, min(_LONGEST, _TURNS * connections / known[-1]))

        def measure() -> dict[str, float]:
            then, cpu = running.counters(), running.cpu()
            load = closed_loop(running.port, connections, seconds, self.folder)
            now = self._settled(running)
            found = {
                "rate": load.rate,
                "p50": load.p50,
                "cpu": (now.all - cpu.all) / load.answered,
                "training": (now.training - cpu.training) / load.answered,
            }
            if (share := running.stored_since(then)) is not None:
                found["stored"] = share
            if load.refused or load.failed:
                what = f"{running.target.name} at {connections} connections"
                self.results.note(f"{what}: of {load.requests} answers {load.refused} refused, {load.failed} failed")
            return found

        for name, value in (self.quietly(f"{running.target.name} at {connections}", measure) or {}).items():
            add(key, f"{name}@{connections}", turn, value)

    def _steady(self, running: Running, turn: int, rate: int) -> None:
        key, name, add = running.target.key, running.target.name, self.results.add
        fastest = max((self.results.median(key, f"rate@{connections}") or 0.0) for connections in CONNECTIONS)
        if fastest * _HEADROOM < rate:
            self.results.note(f"{name} at {rate} requests a second: not tried, its limit is {fastest:,.0f}")
            return

        def measure() -> dict[str, float]:
            then, cpu = running.counters(), running.cpu()
            steady = open_loop(running.port, rate, 2 * self.plan.seconds)
            now = self._settled(running)
            cuts = statistics.quantiles(steady.taken, n=100, method="inclusive")
            found = {"p50": cuts[49], "p99": cuts[98], "cpu": (now.all - cpu.all) / len(steady.taken)}
            if (share := running.stored_since(then)) is not None:
                found["stored"] = share
            if steady.failed:
                self.results.note(f"{name} at {rate} requests a second: {steady.failed} of {steady.asked} failed")
            if steady.late > _MOST_LATE * steady.asked:
                self.results.note(f"{name} at {rate} requests a second: the load was late, the machine is too busy")
            return found

        for measured, value in (self.quietly(f"{name} at {rate}/s", measure) or {}).items():
            add(key, f"{measured}@{rate}/s", turn, value)

    def _at_leisure(self, running: Running) -> None:
        """Measure a target's CPU without requests, with few of them, and with those of one long conversation."""
        key, name, seconds = running.target.key, running.target.name, 4 * self.plan.seconds

        def idle() -> float:
            began, cpu = time.monotonic(), self._settled(running)
            time.sleep(seconds)
            return (running.cpu().all - cpu.all) / (time.monotonic() - began)

        def asked(rate: int, ask: Callable[[int], Asked] | None = None) -> float:
            cpu = running.cpu()
            steady = open_loop(running.port, rate, seconds, ask)
            return (self._settled(running).all - cpu.all) / len(steady.taken)

        of_one = conversation(LONG)
        measures: dict[str, tuple[str, Callable[[], float]]] = {
            "idle": ("idle", idle),
            f"cpu@{LOW_RATE}/s": (f"at {LOW_RATE}/s", lambda: asked(LOW_RATE)),
            "long": ("a long conversation", lambda: asked(LONG_RATE, lambda number: (of_one(number), None))),
        }
        for measured, (what, measure) in measures.items():
            if (value := self.quietly(f"{name}, {what}", measure)) is not None:
                self.results.add(key, measured, 0, value)

    def streams(self, running: Running, turn: int) -> None:
        """A target's turn in a round of streams."""
        key, plan = running.target.key, self.plan
        running.begin()

        def measure(api: Api) -> dict[str, float]:
            cpu = running.cpu()
            # they begin one after the other, so that the first event of one does not wait for that of another
            streams = run_streams(running.port, plan.streams, plan.events, 10, opening=1.0, api=api)
            now = self._settled(running)
            if streams.whole < plan.streams:
                self.results.note(f"{running.target.name}, {api}: {streams.whole} of {plan.streams} streams came whole")
            events = plan.events * len(streams.first)
            return {"first": statistics.median(streams.first), "event": (now.all - cpu.all) / events}

        try:
            for api in Api if not turn and running.target.compared else (Api.CHAT,):
                run_streams(running.port, 4, 10, 10, opening=0.1, api=api)  # warm
                what = f"{running.target.name}, streams of {api}"
                for measured, value in (self.quietly(what, partial(measure, api)) or {}).items():
                    self.results.add(key, measured if api is Api.CHAT else f"{measured} of {api}", turn, value)
        except (LoadFailed, OSError) as error:
            self.results.note(f"{running.target.name}, streams: {error}")
        running.rest()

    def slow_streams(self, running: Running) -> None:
        """Memory with many slow streams open."""
        if running.process is None:
            return
        key, plan, add = running.target.key, self.plan, self.results.add
        running.begin()

        def look() -> None:
            used = running.memory()
            add(key, "slow_pss", 0, used.pss)
            add(key, "slow_rss", 0, used.rss)

        opening = plan.slow_streams / 500
        after = opening + plan.slow_events - 2  # all are open, and have been for as long as it goes
        what = f"{running.target.name}, {plan.slow_streams} slow streams"
        try:
            pace = (plan.slow_streams, plan.slow_events, 1000)
            streams = run_streams(running.port, *pace, opening=opening, after=after, look=look)
            add(key, "slow_first", 0, statistics.median(streams.first))
            if streams.whole < plan.slow_streams:
                self.results.note(f"{what}: {streams.whole} came whole")
        except (LoadFailed, OSError) as error:
            self.results.note(f"{what}: {error}")
        print(f"  {what}", file=sys.stderr, flush=True)
        running.rest()
