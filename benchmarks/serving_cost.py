"""What it costs that versions may answer users: CPU a request and added time, with serving off, on, and with a share.

    python benchmarks/serving_cost.py [--rate 500] [--seconds 8] [--rounds 3]

Production, the lane and the users are in this process, as in `lane_stopped.py`; `slipstream serve` has one worker and
captures nothing by rate, so that what differs is the decision who answers, and the lane's connection. A round measures
each row once, so that the machine's drift falls on all alike; the median round counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop
from lane_stopped import VERSION, LaneServer, Users, checkpoints, until
from restart import Deployment, production

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
    server = await asyncio.start_server(production, "127.0.0.1", 0, backlog=4096)
    with tempfile.TemporaryDirectory() as name:
        lane = LaneServer(Path(name) / "lane" / "job")
        lane_url = f"http://127.0.0.1:{await lane.start()}/v1"
        sections: dict[str, Any] = {"capture": {"rate": 0.0}}
        if share is not None:
            sections["serving"] = {
                "mode": "on",
                "checkpoints": str(checkpoints(Path(name) / "job")),
                "lane": {"base_url": lane_url, "directory": str(Path(name) / "lane" / "job")},
            }
        deployment = Deployment(
            Path(name), server.sockets[0].getsockname()[1], 1, f"sqlite+aiosqlite:///{name}/slipstream.db", **sections
        )
        deployment.start("serve")
        try:
            await deployment.ready()
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{deployment.port}", timeout=60) as control:
                if share:
                    await until(control, f"/versions/{VERSION}", "version", VERSION)
                    await until(control, "/serving", "ready", True)
                    said = await control.post("/serving/share", json={"version": VERSION, "share": share})
                    said.raise_for_status()
                    await until(control, "/serving", "share", share)
            users = Users(deployment.port, rate)
            working = asyncio.create_task(users.work())
            await asyncio.sleep(WARM)
            before, begun, first = _cpu(deployment), time.perf_counter(), len(users.answered)
            await asyncio.sleep(seconds)
            after, ended, last = _cpu(deployment), time.perf_counter(), len(users.answered)
            users.over = True
            await working
        finally:
            await deployment.end("serve")
            server.close()
            await lane.end()
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
