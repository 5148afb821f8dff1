"""The machine: which cores serve what, what a process used, how busy everyone else was, and what this machine is."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """The proxy under test has `proxy` for itself; upstream and load share the others."""

    proxy: frozenset[int]
    others: frozenset[int]

    @property
    def both(self) -> frozenset[int]:
        return self.proxy | self.others


def split_cores() -> Cores:
    """The last core for the proxy, the others for upstream and load. With a single core they all share it."""
    cores = sorted(os.sched_getaffinity(0))
    return Cores(frozenset(cores[-1:]), frozenset(cores[:-1] or cores))


def tree(root: int) -> list[int]:
    """Ids of `root` and of all that descends from it or is of its session (a daemon has lost its parent)."""
    rows = []
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                fields = Path(f"/proc/{folder}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            rows.append((int(folder), int(fields[1]), int(fields[3])))
    found = {root}
    while more := {pid for pid, parent, session in rows if pid not in found and (parent in found or session == root)}:
        found |= more
    return sorted(found)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of all threads that live, to the nanosecond. A thread that has ended is not in it."""
    spent = 0
    for pid in pids:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                spent += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except (OSError, IndexError):
            continue
    return spent / 1e9


@dataclass(frozen=True)
class Memory:
    """Bytes: `rss` counts what processes share once for each, `pss` once."""

    pss: int = 0
    rss: int = 0


def memory(pids: Iterable[int]) -> Memory:
    """Of all the processes together; nothing where the kernel does not let us see it."""
    total = {"Pss:": 0, "Rss:": 0}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, *rest = line.split()
            if name in total:
                total[name] += int(rest[0]) * 1024
    return Memory(total["Pss:"], total["Rss:"])


class Strangers:
    """Cores' worth of CPU that neither we nor those we started used, and that the hypervisor gave to others.

    Args:
        ours: ids of the trees of processes that belong to the measurement and outlive it. What this process waits for
            (wrk) is counted by itself.
    """

    def __init__(self, ours: Iterable[int]) -> None:
        self._ours = list(ours)
        self._began = self._now()

    def _now(self) -> tuple[float, float, float]:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        user, nice, system, steal = fields[0], fields[1], fields[2], fields[7]
        usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        mine = sum(usage.ru_utime + usage.ru_stime for usage in usages)
        pids = {pid for root in self._ours for pid in tree(root)}
        ours = mine + cpu_seconds(pids)
        return time.monotonic(), (user + nice + system) / _TICKS - ours, steal / _TICKS

    def cores(self) -> float:
        """Cores that were busy with something else since this object was made; 0.1 is 10% of one core."""
        then, now = self._began, self._now()
        spent = max(0.0, now[1] - then[1]) + now[2] - then[2]
        return spent / (now[0] - then[0])


def describe() -> str:
    """One line: processor, cores, memory, kernel."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in info if line.startswith("model name")), platform.machine())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{model}, {os.cpu_count()} cores, {pages / 2**30:.0f} GiB, {platform.system()} {platform.release()}"
