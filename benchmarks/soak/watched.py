"""What each process of the sidecar holds, by name, and what the sidecar says of itself; looked at every few seconds."""

from __future__ import annotations

import contextlib
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.machine import cpu_seconds, memory

_GAUGES = {
    "proxy": "slipstream_proxy_tasks",
    "training": "slipstream_training_tasks",
}
_SAID = (
    "slipstream_calls_captured_total",
    "slipstream_dropped_total",
    "slipstream_runs_total",
    "slipstream_capture_queue",
)


@dataclass(frozen=True, slots=True)
class Held:
    """By one process: bytes of memory, open descriptors, threads, tasks of asyncio (None: not told), seconds of CPU."""

    pid: int
    rss: int
    pss: int
    descriptors: int
    threads: int
    tasks: float | None
    cpu: float


def processes(parent: int) -> dict[str, int]:
    """Ids of the sidecar's processes by name: `parent`, `proxy-0`, `training`."""
    found = {"parent": parent}
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(OSError):  # one that has just ended
                found[Path(f"/proc/{pid}/comm").read_text().strip().removeprefix("slip-")] = int(pid)
    return found


def held(parent: int, said: Mapping[str, float]) -> dict[str, Held]:
    """By each process of the sidecar; what has just ended is left out."""
    found = {}
    for name, pid in processes(parent).items():
        with contextlib.suppress(OSError, StopIteration):
            used = memory([pid])
            status = Path(f"/proc/{pid}/status").read_text().splitlines()
            threads = next(int(line.split()[1]) for line in status if line.startswith("Threads:"))
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            tasks = said.get(_GAUGES.get(name.partition("-")[0], ""))
            found[name] = Held(pid, used.rss, used.pss, descriptors, threads, tasks, cpu_seconds([pid]))
    return found


def said(port: int) -> dict[str, float]:
    """The sidecar's own figures, summed over their labels; nothing while it cannot answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=4) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    sums: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        metric = name.partition("{")[0]
        if not line.startswith("#"):
            sums[metric] = sums.get(metric, 0.0) + float(value)
    return sums


def store_bytes(path: Path) -> int:
    """Of a SQLite store: the file and its log."""
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
