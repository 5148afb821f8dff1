"""The benchmark's command line. `make bench` runs it; `python -m bench` with `benchmarks` on the path does too."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import region, report, scaling
from bench.machine import Cores, split_cores
from bench.processes import Process, Unavailable, ending, free_port
from bench.results import Results
from bench.rounds import Plan, Turns
from bench.running import Running, start
from bench.targets import TARGETS, Target, chosen
from bench.upstreams import start_nginx, start_streams

_REGION = "bench"
_INSTALL = "on Debian and Ubuntu: apt-get install --no-install-recommends nginx-light wrk"

_UP_TO_REQUESTS, _UP_TO_STREAMS = 0.72, 0.82
"""Shares of the time after which no round of requests, and of streams, begins; slow streams and workers come last."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; returns the exit code."""
    parser = argparse.ArgumentParser(prog="bench", description="What a proxy between an agent and its model costs.")
    parser.add_argument("--rounds", type=int, default=3, help="how often every target has its turn (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement (2)")
    parser.add_argument("--minutes", type=float, default=15.0, help="the whole may take about so long (15)")
    parser.add_argument("--only", default="", metavar="KEYS", help=f"of {', '.join(t.key for t in TARGETS)}")
    parser.add_argument("--quick", action="store_true", help="one round of one second, fewer streams")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the report into this file's region")
    options = parser.parse_args(arguments)
    try:
        targets = chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.write and (problem := region.unwritable(options.write, _REGION)):
        print(f"bench: --write: {problem}", file=sys.stderr)
        return 2
    if missing := [name for name in ("nginx", "wrk") if shutil.which(name) is None]:
        print(f"bench: {' and '.join(missing)} not found; {_INSTALL}", file=sys.stderr)
        return 2
    if options.quick:
        plan = Plan(1, 1.0, 20, 50, 200, 4, options.minutes)
    else:
        plan = Plan(options.rounds, options.seconds, 50, 100, 1000, 10, options.minutes)
    try:
        results = _measure(plan, targets)
    except KeyboardInterrupt:
        print("bench: stopped, and so is everything that it had started", file=sys.stderr)
        return 130
    except Unavailable as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    said = [] if options.write else sys.argv[1:] if arguments is None else arguments
    text = report.report(results, targets, plan, " ".join(said))
    print(text)
    if options.write:
        region.write(options.write, _REGION, text)
    return 0


def _measure(plan: Plan, targets: Sequence[Target]) -> Results:
    results = Results()
    cores = split_cores()
    os.sched_setaffinity(0, cores.others)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536), most))
    processes: list[Process] = []
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as name, ending(processes):
        folder = Path(name)
        port = free_port()
        processes.append(start_nginx(folder / "upstream", port, cores))
        turns = Turns(plan, results, processes, folder)
        running = _start(targets, folder, port, cores, processes, results)
        for turn in turns.each_round("requests", _UP_TO_REQUESTS):
            results.rounds = turn + 1
            for each in running:
                turns.requests(each, turn)
        processes[0].end()
        processes[0] = start_streams(folder / "streams", port, cores)
        for turn in turns.each_round("streams", _UP_TO_STREAMS):
            for each in running:
                turns.streams(each, turn)
        for each in running:
            turns.slow_streams(each)
        while len(processes) > 1:
            processes.pop().end()
        if any(target.capture is not None for target in targets):
            processes[0].end()
            processes[0] = start_nginx(folder / "scaling", port, cores)
            scaling.measure(turns, port, cores, processes)
    return results


def _start(
    targets: Sequence[Target], folder: Path, upstream: int, cores: Cores, processes: list[Process], results: Results
) -> list[Running]:
    running = []
    for target in targets:
        try:
            each = start(target, folder, upstream, cores, processes)
        except Unavailable as error:
            results.unavailable[target.key] = str(error)
            print(f"  {target.name}: {error}", file=sys.stderr, flush=True)
            continue
        each.rest()
        running.append(each)
        print(f"  {target.name} runs", file=sys.stderr, flush=True)
    return running


if __name__ == "__main__":
    sys.exit(main())
