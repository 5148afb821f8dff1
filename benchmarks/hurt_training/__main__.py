"""What agents notice while the training side is hurt on purpose: nothing.

For each way to hurt it, in turn and several times: a fresh sidecar, agents' requests at a steady rate while all is
well, and as many while the training side is hurt. Each answer is compared with production's, byte for byte.
`make hurt` runs it; `python -m hurt_training` with `benchmarks` on the path does too.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import describe, split_cores
from bench.processes import Process, Unavailable, ending
from bench.region import unwritable, write
from bench.steady import Steady

from hurt_training.rig import Rig
from hurt_training.ways import WAYS, Unable, Way

_REGION = "hurt"
_APART = "HURT_TRAINING_MOUNTS"
"""Set in the run that has mounts of its own."""
_DISK = "64m"
_WARM = 200
"""Requests before those that count: code is loaded, connections are open."""


@dataclass
class Row:
    """All rounds of one way."""

    way: Way
    quiet: list[Steady] = field(default_factory=list)
    hurt: list[Steady] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    unable: str = ""

    @property
    def failed(self) -> int:
        return sum(steady.failed for steady in (*self.quiet, *self.hurt))

    def line(self) -> str:
        if self.unable:
            return f"| {self.way.name} | left out: {self.unable} | | | | | | | |"
        happened = ", ".join(f"{what} {count} times" for what, count in self.struck.items()) or "it never struck"
        counts = [
            sum(getattr(steady, what) for steady in self.hurt) for what in ("asked", "refused", "broken", "changed")
        ]
        quiet, hurt = _p99(self.quiet), _p99(self.hurt)
        figures = [
            *(f"{count:,}" for count in counts),
            *(f"{p99:.1f}" for p99 in (quiet, hurt)),
            f"{hurt - quiet:+.1f}",
        ]
        return f"| {self.way.name} | {happened} | {' | '.join(figures)} |"


def _p99(measured: Sequence[Steady]) -> float:
    """Milliseconds, of all rounds together."""
    taken = [seconds * 1000 for steady in measured for seconds in steady.taken]
    return statistics.quantiles(taken, n=100, method="inclusive")[98] if len(taken) > 1 else float("nan")


def _measure(row: Row, executor: Executor, rate: float, requests: int) -> None:
    """One round of a way, on a sidecar of its own."""
    folder = Path(tempfile.mkdtemp(prefix="hurt-"))
    (disk := folder / "disk").mkdir()
    mounted = (
        _APART in os.environ
        and not subprocess.run(
            ["mount", "--types", "tmpfs", "--options", f"size={_DISK}", "none", disk], check=False
        ).returncode
    )
    processes: list[Process] = []
    try:
        with ending(processes):
            pipe = folder / "log" if row.way.piped else None
            if pipe:
                os.mkfifo(pipe)
                held = os.open(pipe, os.O_RDWR)
            rig = Rig(folder, disk, split_cores(), processes, pipe)
            rig.start()
            rig.agents(executor, rate, _WARM)
            quiet = rig.agents(executor, rate, requests)
            with row.way.hurt(rig) as struck:
                hurt = rig.agents(executor, rate, requests)
            row.quiet.append(quiet)
            row.hurt.append(hurt)
            row.struck.update(struck)
            if pipe:
                os.close(held)
    except Unable as unable:
        row.unable = str(unable)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", disk], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _report(rows: Sequence[Row], rate: float, requests: int, rounds: int) -> str:
    said = [
        f"- `make hurt`: {rounds} rounds of {requests:,} requests, {rate:.0f} a second, 2 KB each, and as many before",
        "- `slipstream proxy` with one worker and `slipstream training` with SQLite, together on one core",
        f"- machine: {describe()}",
        "",
    ]
    head = ["what is done to the training side", "how often", "requests", "refused", "broken", "changed"]
    head += ["p99 before, ms", "p99 meanwhile, ms", "added"]
    table = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * 7]
    return "\n".join([*said, *table, *(row.line() for row in rows)])


def _own_mounts() -> None:
    """Begin anew with mounts of this run's own, for a disk that can be filled; go on without if that is not allowed."""
    if _APART in os.environ:
        return
    unshare = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return
    os.environ[_APART] = "1"
    os.execvp("unshare", [*unshare, sys.executable, "-m", "hurt_training", *sys.argv[1:]])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns 1 if an agent noticed anything but time, or a way never struck."""
    parser = argparse.ArgumentParser(
        prog="hurt_training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000, help="of agents in each round of a way (1000)")
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second (200)")
    parser.add_argument("--rounds", type=int, default=2, help="of each way (2)")
    parser.add_argument("--only", default="", help="ways whose name has this in it")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file's region")
    options = parser.parse_args(arguments)
    if options.write and (problem := unwritable(options.write, _REGION)):
        parser.error(f"--write: {problem}")
    rows = [Row(way) for way in WAYS if options.only in way.name]
    if not rows:
        parser.error(f"--only: expected a part of one of {', '.join(way.name for way in WAYS)}, found {options.only}")
    try:
        with ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), os.sched_setaffinity, (0, split_cores().others)
        ) as executor:
            for _ in range(options.rounds):
                for row in rows:
                    if not row.unable:
                        _measure(row, executor, options.rate, options.requests)
                        print(row.line(), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("hurt_training: stopped, and so is everything that it had started", file=sys.stderr)
        return 130
    except Unavailable as error:
        print(f"hurt_training: {error}", file=sys.stderr)
        return 1
    text = _report(rows, options.rate, options.requests, options.rounds)
    print(text)
    if options.write:
        write(options.write, _REGION, text)
    return 1 if any(row.failed or not (row.struck or row.unable) for row in rows) else 0


if __name__ == "__main__":
    _own_mounts()
    sys.exit(main())
