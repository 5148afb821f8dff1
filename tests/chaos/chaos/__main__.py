"""`python -m chaos`: run schedules, say what failed and how to run it again, and count what was injected."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import region

from chaos import report
from chaos.schedule import schedule_of

_REGION = "chaos"
"""Of the page that the table is written into."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seeds", default="0-199", help="such as 7, or 0-199, or 3,5,8 (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=3, help="schedules at once (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the verdicts here, a line each")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into this page")
    parser.add_argument("--keep", type=Path, help="keep what a schedule leaves behind in this folder")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None and (reason := region.unwritable(options.write, _REGION)) is not None:
        parser.error(reason)
    seeds = _seeds(options.seeds)
    if options.here:
        return _here(seeds[0], options.json, options.keep)
    return asyncio.run(_all(seeds, options))


def _seeds(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def _here(seed: int, result: Path, keep: Path | None) -> int:
    """One schedule in this process, which has the machine's namespaces or its own."""
    from chaos import explorers  # here, as all that a schedule needs: who only waits for them starts in no time
    from chaos.one import judge

    folder = Path(tempfile.mkdtemp())
    schedule = schedule_of(seed)
    if not explorers.available(schedule.explorer):
        schedule = replace(schedule, explorer="scripted")
    try:
        verdict = asyncio.run(judge(schedule, folder))
    except AssertionError as error:  # it did not come up
        print(error)
        return 1
    result.write_text(json.dumps(verdict.as_dict()))
    if keep is not None:  # from in here: the store's disk is gone with this process
        shutil.copytree(folder, keep / f"seed-{seed}", dirs_exist_ok=True)
    return 0


async def _all(seeds: list[int], options: argparse.Namespace) -> int:
    if any(schedule_of(seed).explorer == "embedded" for seed in seeds):
        from chaos import explorers

        await asyncio.to_thread(explorers.prepare_tiny_model)
    turn = asyncio.Semaphore(options.jobs)

    async def one(seed: int) -> report.Outcome:
        async with turn:
            outcome = await report.run(seed, options.keep)
            print(report.line(outcome), flush=True)
            if outcome["violations"]:
                print(report.failure(outcome), flush=True)
            return outcome

    outcomes = await asyncio.gather(*(one(seed) for seed in seeds))
    if options.json:
        options.json.write_text("".join(json.dumps(outcome) + "\n" for outcome in outcomes))
    if options.write:
        region.write(options.write, _REGION, report.table(outcomes, f"make chaos SEEDS={options.seeds}"))
    failed = sum(bool(outcome["violations"]) for outcome in outcomes)
    print(f"{len(outcomes)} schedules, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
