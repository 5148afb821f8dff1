"""What Slipstream says of itself: calls stored, dropped and waiting, from its /metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counters:
    """Calls since the start; `waiting` now. `left_out` are those that capture was told to leave out."""

    stored: float = 0.0
    dropped: float = 0.0
    left_out: float = 0.0
    waiting: float = 0.0

    def since(self, then: Counters) -> Counters:
        return Counters(
            self.stored - then.stored, self.dropped - then.dropped, self.left_out - then.left_out, self.waiting
        )

    def share_stored(self, rate: float) -> float | None:
        """Of the calls that capture at this rate wants, the share that is stored; None without any.

        What is dropped may be dropped before it is known whether it was wanted, so the rate says how many were.
        """
        seen = self.stored + self.dropped + self.left_out + self.waiting
        if not seen * rate:
            return None
        lost = self.dropped + self.waiting
        return min(1.0, self.stored / (seen * rate)) if lost else 1.0


def parse(exposition: str) -> Counters:
    """Read Prometheus' text format."""
    sums = {"stored": 0.0, "dropped": 0.0, "left_out": 0.0, "waiting": 0.0}
    for line in exposition.splitlines():
        name, _, value = line.rpartition(" ")
        metric, _, labels = name.partition("{")
        if metric == "slipstream_calls_captured_total":
            sums["stored"] += float(value)
        elif metric == "slipstream_dropped_total" and "runs_queue_full" not in labels:
            sums["dropped"] += float(value)
        elif metric == "slipstream_calls_not_captured_total":
            sums["left_out"] += float(value)
        elif metric == "slipstream_capture_queue":
            sums["waiting"] += float(value)
    return Counters(**sums)


def counters(port: int) -> Counters:
    """Ask the sidecar.

    Raises:
        OSError: it does not answer.
    """
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return parse(answer.read().decode())


def training_side(pids: Iterable[int]) -> set[int]:
    """Those of the processes that have the store open."""
    found = set()
    for pid in pids:
        for opened in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if opened.readlink().name.startswith("slipstream.db"):
                    found.add(pid)
            except OSError:
                continue
    return found
