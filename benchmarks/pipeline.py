"""What the training side costs behind the capture: from tasks in the store to committed feedback.

    python benchmarks/pipeline.py [--tasks 300] [--repeat-time 4] [--workers 1,2,4] [--rounds 3]

The store is filled with complete tasks of one call each (2 KB request, 1 KB answer), by the Recorder. Then the training
side is started: everything is selected, each call is run `repeat_time` times, each run gets a constant reward, and
groups are committed as soon as 200 experiences are ready. The clock runs from the start to the last commit.

The Explorer is a stub that answers at once, a process of its own: with a model behind it an answer takes seconds, and
what is measured here is all that the sidecar adds. PostgreSQL is a real server, started for this, with its defaults.

A worker is one training side with a store and an Explorer of its own. A store has one training side, so 2 and 4
workers show what more of them on one machine and one database server bring, and not several on one store.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import uvloop
from postgresql import postgresql

from slipstream import logs
from slipstream.proxy.metrics import SharedCounters
from slipstream.proxy.tap import Exchange
from slipstream.settings.sidecar import Settings
from slipstream.sidecar import Sidecar
from slipstream.store import commits, ready_groups

_STUB = Path(__file__).with_name("explorer_stub.py")
_PATIENCE = 300
"""Seconds for one worker. What takes longer hangs."""
_PENDING = 200
"""Experiences that make a commit: a few training batches."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one worker took, in seconds: Unix times, the CPU time of all its threads, and that by stage."""

    began: float
    ended: float
    cpu: float
    stages: dict[str, float] = field(default_factory=dict)


def _exchange(number: int) -> Exchange:
    """One captured call that makes a task of its own."""
    words = f"question {number}: " + "how is this to be answered, and why? " * 52
    request = {"model": "prod", "messages": [{"role": "user", "content": words}]}
    answer = {
        "id": f"prod-{number}",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "prod",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "In these words. " * 50}, "finish_reason": "stop"}
        ],
    }
    return Exchange(
        method="POST",
        path="/v1/chat/completions",
        request_headers=[(b"x-slipstream-task-id", f"task-{number}".encode())],
        request_body=json.dumps(request).encode(),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        response_body=json.dumps(answer).encode(),
        started_at=time.time(),
        first_byte_after=0.01,
        duration=0.01,
        error=None,
    )


@asynccontextmanager
async def _explorer() -> Any:
    """The stub as a process; yields its URL."""
    process = await asyncio.create_subprocess_exec(sys.executable, str(_STUB), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.kill()
        await process.wait()


def _settings(store: str, explorer: str, options: argparse.Namespace) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": store},
            "explorer": {"base_url": explorer},
            "capture": {"queue": options.tasks},
            "selection": {"sampling": {"rate": 1.0}},
            "runs": {
                "repeat_time": options.repeat_time,
                "concurrency": options.concurrency,
                "queue": options.tasks * options.repeat_time,
            },
            "rewards": {"calculators": [{"constant": {"value": 0.5}}]},
            "commit": {"interval": "1h", "max_pending": _PENDING, "on_shutdown": False},
        }
    )


async def _fill(sidecar: Sidecar, count: int) -> None:
    for number in range(count):
        sidecar.capture.writer.record(_exchange(number))
    while await sidecar.capture.writer.step() or await sidecar.capture.recorder.step():
        pass


async def _delivered(sidecar: Sidecar) -> int:
    async with sidecar.database.read() as session:
        return await commits.delivered_experiences(session)


async def _together(settings: Settings, options: argparse.Namespace, go: Connection) -> Taken:
    """All stages at once, as `slipstream serve` runs them."""
    filled = Sidecar(settings, SharedCounters(workers=1))
    await filled.database.open()
    await _fill(filled, options.tasks)
    await filled.database.close()
    sidecar = Sidecar(settings, SharedCounters(workers=1))
    go.send(None)
    await asyncio.to_thread(go.recv)
    cpu, began = time.process_time(), time.time()
    await sidecar.start()
    expected = options.tasks * options.repeat_time
    while (delivered := await _delivered(sidecar)) < expected:
        async with sidecar.database.read() as session:
            if expected - delivered == await ready_groups.ready_experiences(session):  # what is left is no whole batch
                await sidecar.deliveries.committer.commit("manual")
        await asyncio.sleep(0.05)
    taken = Taken(began, time.time(), time.process_time() - cpu)
    await sidecar.stop()
    return taken


async def _one_after_the_other(settings: Settings, options: argparse.Namespace) -> Taken:
    """Each stage alone, on what the one before it has left: where the time goes."""
    stages: dict[str, float] = {}
    sidecar = Sidecar(settings, SharedCounters(workers=1))
    await sidecar.database.open()
    began, cpu = time.time(), time.process_time()

    def ended(stage: str) -> None:
        nonlocal cpu
        now = time.process_time()
        stages[stage], cpu = now - cpu, now

    await _fill(sidecar, options.tasks)
    ended("recorder")
    while await sidecar.planner.step():
        pass
    ended("planner")
    answered = sidecar.metrics.runs.labels("answered")
    while answered._value.get() < options.tasks * options.repeat_time:
        await sidecar.runs.shadow.step()
        await sidecar.runs.shadow.drained()
    ended("shadow")
    while await sidecar.scorer.step():
        pass
    ended("scorer")
    await sidecar.deliveries.committer.commit("manual")
    ended("committer")
    assert await _delivered(sidecar) == options.tasks * options.repeat_time
    sidecar.explorer.close()
    await sidecar.database.close()
    return Taken(began, time.time(), sum(stages.values()), stages)


def _worker(store: str, options: argparse.Namespace, go: Connection, alone: bool) -> None:
    """One training side, in a process of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logs.configure()  # at the level that people run it with

    async def work() -> Taken:
        async with _explorer() as explorer:
            settings = _settings(store, explorer, options)
            async with asyncio.timeout(_PATIENCE):
                return await (_one_after_the_other(settings, options) if alone else _together(settings, options, go))

    go.send(asdict(uvloop.run(work())))


@contextmanager
def _sqlite() -> Iterator[tuple[Any, None]]:
    """Yields what makes a fresh store, and no server."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(1000))
        yield lambda: f"sqlite+aiosqlite:///{folder}/{next(numbers)}.db", None


_STORES = {"sqlite": _sqlite, "postgresql": postgresql}


def _cpu(server: psutil.Process | None) -> float:
    """Seconds of CPU that a database server and its connections, ended ones included, have taken so far."""
    if server is None:
        return 0.0
    spent = [process.cpu_times() for process in (server, *server.children())]
    return sum(times.user + times.system for times in spent) + spent[0].children_user + spent[0].children_system


def _measure(fresh: Any, workers: int, options: argparse.Namespace, *, alone: bool = False) -> list[Taken]:
    spawn = multiprocessing.get_context("spawn")
    here = []
    for _ in range(workers):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_worker, args=(fresh(), options, theirs, alone))
        process.start()
        theirs.close()
        here.append((process, ours))
    if not alone:
        for _, ours in here:
            ours.recv()
        for _, ours in here:
            ours.send(None)
    taken = [Taken(**ours.recv()) for _, ours in here]
    for process, _ in here:
        process.join()
    return taken


def _throughput(options: argparse.Namespace) -> None:
    print("| store | workers | tasks/s | experiences/s | CPU of a worker, ms per run | of the database server |")
    print("|---|---|---|---|---|---|")
    runs = options.tasks * options.repeat_time
    for name in options.stores:
        for workers in options.workers:
            best: tuple[float, float, float] = (0.0, 0.0, 0.0)
            for _ in range(options.rounds):
                with _STORES[name]() as (fresh, server):
                    served = _cpu(server)
                    taken = _measure(fresh, workers, options)
                    served = _cpu(server) - served
                seconds = max(one.ended for one in taken) - min(one.began for one in taken)
                cpu = statistics.mean(one.cpu for one in taken) / runs
                best = max(best, (workers * options.tasks / seconds, cpu, served / runs / workers))
            rate, cpu, served = best
            database = f"{served * 1000:.2f} ms" if served else "-"
            experiences = rate * options.repeat_time
            print(
                f"| {name} | {workers} | {rate:.0f} | {experiences:.0f} | {cpu * 1000:.2f} | {database} |", flush=True
            )


def _by_stage(options: argparse.Namespace) -> None:
    rounds: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        for name in options.stores:
            with _STORES[name]() as (fresh, _):
                rounds.setdefault(name, []).append(_measure(fresh, 1, options, alone=True)[0].stages)
    runs = options.tasks * options.repeat_time
    stages = list(rounds[options.stores[0]][0])
    print(f"\nCPU of the training side, µs per run, each stage alone\n\n| store | {' | '.join(stages)} |")
    print(f"|---|{'---|' * len(stages)}")
    for name, taken in rounds.items():
        spent = (min(one[stage] for one in taken) / runs * 1e6 for stage in stages)
        print(f"| {name} | {' | '.join(f'{microseconds:.0f}' for microseconds in spent)} |")


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--repeat-time", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=10, help="runs.concurrency")
    parser.add_argument("--workers", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--stores", type=lambda text: text.split(","), default=list(_STORES))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{options.tasks} tasks of one call, {options.repeat_time} runs each, {options.concurrency} at once; "
        f"best of {options.rounds} rounds; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    _throughput(options)
    _by_stage(options)


if __name__ == "__main__":
    main()
