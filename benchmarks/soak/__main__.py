"""The soak's command line. `make soak` runs it; `python -m soak` with `benchmarks` on the path does too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.processes import Unavailable
from bench.region import unwritable, write

from soak.measured import Plan, measure
from soak.report import draw, judge, keep, report, unexpected

_REGION = "soak"
_PICTURE = Path("images") / "soak.png"
_FIGURES = Path(__file__).with_name("last.csv.gz")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and judge; returns 1 where something rose or an answer was not what it should have been."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="of load (30); a third of them warms up")
    parser.add_argument("--streams", type=int, default=1000, help="open all the time (1000)")
    parser.add_argument("--share", type=float, default=0.8, help="of the capacity, as load (0.8)")
    parser.add_argument("--capacity", type=float, default=60.0, help="seconds in which the capacity is found (60)")
    parser.add_argument("--seed", type=int, default=1, help="of what the agents ask (1)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this file's region")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw into this file, where nothing is written")
    options = parser.parse_args(arguments)
    if options.write and (problem := unwritable(options.write, _REGION)):
        parser.error(f"--write: {problem}")
    plan = Plan(options.minutes * 60, options.streams, options.capacity, options.share, options.seed)
    try:
        measured = measure(plan)
    except KeyboardInterrupt:
        print("soak: stopped, and so is everything that it had started", file=sys.stderr)
        return 130
    except Unavailable as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    judged = judge(measured)
    text = report(measured, judged, f"![Memory, descriptors, the store and the load over time]({_PICTURE})")
    print(text)
    if options.write:
        draw(measured, options.write.parent / _PICTURE)
        keep(measured, _FIGURES)
        write(options.write, _REGION, text)
    elif options.picture:
        draw(measured, options.picture)
    risen = [each for each in judged if not each.flat]
    return 1 if risen or unexpected(measured) else 0


if __name__ == "__main__":
    sys.exit(main())
