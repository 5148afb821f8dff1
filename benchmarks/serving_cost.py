"""Cost of serving a version to users: CPU time and latency of a request with serving off, on, and with a share.

    python benchmarks/serving_cost.py [--rate 500] [--seconds 8] [--rounds 3]

Production, the lane and the users are in this process, as in `lane_stopped.py`; `slipstream serve` has one worker and
captures nothing by rate, so that what differs is the decision who answers, and the lane's connection. A round measures
each row once, so that the machine's drift falls on all alike; the median round counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections import defaultdict

import psutil
import uvloop
from lane_stopped import Users, running, until
from restart import Deployment

WARM = 2.0
"""Seconds of load before it is measured."""

ROWS: dict[str, float | None] = {
    "`serving.mode: off`": None,
    "on, no share": 0.0,
    "on, a share of 0.5": 0.5,
    "on, a share of 1": 1.0,
}
"""The share of each row; None is off."""


def _cpu(deployment: Deployment) -> tuple[float, float]:
    """CPU seconds so far of the worker, and of all processes of the sidecar."""
    parent = psutil.Process(deployment.running["serve"].pid)
    spent = 0.0
    worker = 0.0
    for process in (parent, *parent.children(recursive=True)):
        times = process.cpu_times()
        spent += times.user + times.system
        if process.name().startswith("slip-proxy"):
            worker += times.user + times.system
    return worker, spent


async def measure(share: float | None, rate: int, seconds: float) -> tuple[float, float, float, float]:
    """CPU microseconds a request of the worker and of all, and milliseconds at p50 and p99."""
    async with running(1, serves=share is not None, capture={"rate": 0.0}) as rig:
        if share:
            await rig.ready()
            await rig.serve("/serving/share", share=share)
            await until(rig.control, "/serving", "share", share)
        users = Users(rig.deployment.port, rate)
        working = asyncio.create_task(users.work())
        await asyncio.sleep(WARM)
        before, begun, first = _cpu(rig.deployment), time.perf_counter(), len(users.answered)
        await asyncio.sleep(seconds)
        after, ended, last = _cpu(rig.deployment), time.perf_counter(), len(users.answered)
        users.over = True
        await working
    assert not users.failed, f"{users.failed} calls failed"
    by_version = sum(version for _, _, version in users.answered) / len(users.answered)
    assert abs(by_version - (share or 0.0)) < 0.05, f"the version answered {by_version:.2f} of the users"
    took = [spent * 1000 for at, spent, _ in users.answered if begun <= at < ended]
    per_call = [(end - start) / (last - first) * 1e6 for start, end in zip(before, after, strict=True)]
    return per_call[0], per_call[1], statistics.median(took), statistics.quantiles(took, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=500, help="calls a second")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: defaultdict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    for _ in range(given.rounds):
        for words, share in ROWS.items():
            found[words].append(uvloop.run(measure(share, given.rate, given.seconds)))
    print("| | CPU of the worker, us a call | of all processes | p50 | p99 |\n|---|---:|---:|---:|---:|")
    for words, rounds in found.items():
        worker, spent, p50, p99 = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"| {words} | {worker:.0f} | {spent:.0f} | {p50:.2f} ms | {p99:.2f} ms |")


if __name__ == "__main__":
    main()
