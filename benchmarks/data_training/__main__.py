"""Measure how much a policy learns from data sets, over several seeds, and write a part of docs/training-data.md.

    PYTHONPATH=benchmarks python -m data_training distil --teacher MODEL [--calls N] [--seeds N]
    PYTHONPATH=benchmarks python -m data_training dpo [--seeds N]
    PYTHONPATH=benchmarks python -m data_training coreset --teacher MODEL [--seeds N]
    PYTHONPATH=benchmarks python -m data_training replay --teacher MODEL [--seeds N]
    PYTHONPATH=benchmarks python -m data_training tools [--seeds N]

Tasks, agent and reward are the demo's, and function calls of the Berkeley Function Calling Leaderboard beside them. The
base model is SmolLM2-135M. What is measured is what an Explorer serves that found the new version in the checkpoint
directory. Each seed's figures are kept in `--output`; `--write docs/training-data.md` writes the page's part from all
that are there, and `--report` does so without measuring.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.region import unwritable, write

from data_training import coreset, distil, dpo, replay, tools
from data_training.given import Figures, Given
from data_training.rig import ROOT


class Experiment(NamedTuple):
    """A measurement, by its name on the command line.

    Attributes:
        run: measures one seed.
        part: the page's part, of the figures of all seeds.
        needs_teacher: whether production is another model than the base.
    """

    run: Callable[[Given, int], Awaitable[dict[str, Any]]]
    part: Callable[[Sequence[Figures]], list[str]]
    needs_teacher: bool = False


EXPERIMENTS = {
    "distil": Experiment(distil.run, distil.part, needs_teacher=True),
    "dpo": Experiment(dpo.run, dpo.part),
    "coreset": Experiment(coreset.run, coreset.part, needs_teacher=True),
    "replay": Experiment(replay.run, replay.part, needs_teacher=True),
    "tools": Experiment(tools.run, tools.part),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", choices=EXPERIMENTS)
    parser.add_argument(
        "--teacher", type=Path, help="model directory that production serves, such as a demo's last version"
    )
    parser.add_argument("--base", type=Path, default=ROOT / ".cache" / "models" / "smollm2")
    parser.add_argument("--calls", type=int, default=200, help="of production, that are captured for distil")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--output", type=Path, default=ROOT / "data-training-output")
    parser.add_argument("--report", action="store_true", help="only report on what is in --output")
    parser.add_argument("--write", type=Path, help="the page whose part is replaced")
    arguments = parser.parse_args()
    name, experiment = arguments.measured, EXPERIMENTS[arguments.measured]
    if arguments.write is not None and (why := unwritable(arguments.write, name)):
        parser.error(f"--write: {why}")
    given = Given(
        arguments.output.absolute(),
        arguments.base.absolute(),
        None if arguments.teacher is None else arguments.teacher.absolute(),
        arguments.calls,
    )
    if not arguments.report:
        if experiment.needs_teacher and given.teacher is None:
            parser.error(f"--teacher: expected a model directory for {name}, found none")
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            figures = {"seed": seed, **asyncio.run(experiment.run(given, seed))}
            print(json.dumps(figures), flush=True)
            given.keep(name, seed, figures)
    if not (kept := given.kept(name)):
        parser.error(f"--output: {given.output} has no measurement of {name}")
    text = "\n".join(experiment.part(kept))
    print(text)
    if arguments.write is not None:
        write(arguments.write, name, text)


if __name__ == "__main__":
    main()
