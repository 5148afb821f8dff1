"""Two proxy workers against one, fairly on a machine of two cores: each worker with a quota of a part of a core.

Two workers on the cores that also carry the load would measure the load. With a quota each worker has as much as the
other, and upstream, load and training side have what is left.
"""

from __future__ import annotations

from bench.counters import training_side
from bench.load import LoadFailed
from bench.machine import Cores
from bench.processes import Process, Unavailable
from bench.quota import NoQuota, Quotas
from bench.rounds import Turns
from bench.running import Running, start
from bench.targets import Target, slipstream

WORKER, TRAINING = 0.2, 0.8
"""Cores for each worker, and for the training side: it must not be what holds two workers back."""
CONNECTIONS = 64
VARIANTS = tuple(
    Target(f"workers-{workers}-{rate:.0%}", f"{name}, capture {rate:.0%}", slipstream(rate, workers), rate)
    for rate in (0.0, 1.0)
    for workers, name in ((1, "1 worker"), (2, "2 workers"))
)


def measure(turns: Turns, upstream: int, cores: Cores, processes: list[Process]) -> None:
    """Every variant in turn, as many rounds as the plan has; into the results of `turns`."""
    results = turns.results
    anywhere = Cores(cores.both, cores.others)
    running: list[Running] = []
    quotas = Quotas()
    try:
        for target in VARIANTS:
            running.append(start(target, turns.folder, upstream, anywhere, processes))
        for each in running:
            _limit(quotas, each)
    except Unavailable as error:
        results.unavailable["workers"] = str(error)
        return
    except NoQuota as error:
        results.note(f"workers: without quotas, so they compete with upstream and load for the cores ({error})")
    try:
        for each in running:
            each.rest()
        for turn in turns.each_round("workers", 1.0):
            for each in running:
                _turn(turns, each, turn)
    finally:
        quotas.end()


def _limit(quotas: Quotas, running: Running) -> None:
    assert running.process is not None
    pids = running.process.tree()
    training = training_side(pids)
    for pid in pids:
        quotas.limit(pid, TRAINING if pid in training and len(pids) > 1 else WORKER)


def _turn(turns: Turns, running: Running, turn: int) -> None:
    running.begin()
    try:
        turns.warm(running)
        turns.fast(running, turn, CONNECTIONS)
    except (LoadFailed, OSError) as error:
        turns.results.note(f"{running.target.name}: {error}")
    running.rest()
