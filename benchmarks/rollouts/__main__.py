"""Error rates and lengths of comparisons between versions, on simulated traffic, for docs/evidence.md.

    PYTHONPATH=benchmarks python -m rollouts [--quick] [--write docs/evidence.md]

Sessions become differences by the service's own function. Evidence is computed for all differences at once with numpy;
a test holds that it equals the service's. `--quick` takes a hundredth of the runs and shows only that all works.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from bench.region import unwritable, write

from rollouts.false_decisions import clusters, delays, equal_versions, intervals, stream, trends
from rollouts.lengths import detection, forecasts, gains, harms
from rollouts.simulation import Random, Row

_REGION = "rollouts"

# Each part with its number of runs.
_PARTS: tuple[tuple[Callable[[Random, int], Iterator[Row]], int], ...] = (
    (equal_versions, 1000),
    (clusters, 1000),
    (trends, 1000),
    (delays, 1000),
    (stream, 60),
    (gains, 400),
    (harms, 200),
    (intervals, 1000),
    (forecasts, 200),
    (detection, 100),
)


def report(quick: bool, seed: int) -> str:
    lines = ["| case | found | promised |", "|---|---|---|"]
    for part, runs in _PARTS:
        for row in part(np.random.default_rng(seed), max(2, runs // 100) if quick else runs):
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this file's region")
    options = parser.parse_args(arguments)
    if options.write and (problem := unwritable(options.write, _REGION)):
        parser.error(f"--write: {problem}")
    text = report(options.quick, options.seed)
    print(text)
    if options.write:
        write(options.write, _REGION, text)


if __name__ == "__main__":
    main()
