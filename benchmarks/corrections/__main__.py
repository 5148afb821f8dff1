"""Corrections in words against the number alone, over several seeds: writes a part of docs/corrections.md.

    PYTHONPATH=benchmarks python -m corrections [--seeds N] [--rounds N] [--answers N] [--write docs/corrections.md]

The base model answers questions of the demo, each once. A simulated user says in words what was wrong with an answer
(`exact`: the expression to calculate; `vague`: that the tool is to be used), or gives a reward and no word. After each
round of answers the policy learns from them, and answers other questions. All ways get the same number of answers.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.region import unwritable, write

ROOT = Path(__file__).parents[2]
HELD_OUT = 48
WAYS = {
    "number": "the reward alone",
    "vague": "“no, use the calculator tool”",
    "exact": "“No: call the calculator with 12 + 30”",
}


@dataclass(frozen=True)
class Round:
    """Figures of one way of learning after a round: rewards from 0 to 1, and the answers learned from."""

    way: str
    seed: int
    answers: int
    held_out: float
    learned_from: int = 0
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, default=ROOT / ".cache" / "models" / "smollm2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", type=int, default=32, help="of a round")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="tasks that are measured on")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--learning-rate", type=float, default=4e-5, help="that of the demo")
    parser.add_argument("--output", type=Path, default=ROOT / "corrections-output")
    parser.add_argument("--report", action="store_true", help="only report on what is in --output")
    parser.add_argument("--write", type=Path, help="the page whose part is replaced")
    arguments = parser.parse_args()
    if arguments.write is not None and (why := unwritable(arguments.write, "learning")):
        parser.error(f"--write: {why}")
    if not arguments.report:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for way in arguments.ways:
                _measure(arguments, way, seed)
    lines = [json.loads(line) for path in sorted(arguments.output.glob("*.jsonl")) for line in path.open()]
    if not lines:
        sys.exit(f"corrections: {arguments.output} has no measurement")
    text = part([Round(**line) for line in lines])
    print(text)
    if arguments.write is not None:
        write(arguments.write, "learning", text)


def _measure(arguments: argparse.Namespace, way: str, seed: int) -> None:
    from corrections.policy import ByNumber, ByWords
    from corrections.user import held_out_tasks, training_tasks

    output: Path = arguments.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    held_out = held_out_tasks(arguments.held_out)
    tasks = training_tasks(seed, arguments.rounds * arguments.answers, held_out)
    folder = output / f"{way}-{seed}"
    learner = (
        ByNumber(arguments.base, folder, arguments.learning_rate)
        if way == "number"
        else ByWords(arguments.base, folder, arguments.learning_rate, way, {})
    )

    def measured() -> float:
        given, _ = learner.policy.answers(held_out, seed=1)
        return statistics.fmean(each.score.reward for each in given)

    with (output / f"{way}-{seed}.jsonl").open("w") as file:

        def note(found: Round) -> None:
            line = json.dumps(asdict(found))
            print(line, flush=True)
            file.write(line + "\n")
            file.flush()

        note(Round(way, seed, 0, measured()))
        for number in range(arguments.rounds):
            began = time.monotonic()
            asked = tasks[number * arguments.answers : (number + 1) * arguments.answers]
            given, experiences = learner.policy.answers(asked, seed=1000 * seed + number)
            learned = learner.learn(given, experiences)
            seconds = time.monotonic() - began
            note(Round(way, seed, (number + 1) * arguments.answers, measured(), learned, seconds))


def part(found: list[Round]) -> str:
    """The part of the page: a row for each way and number of answers, with each seed's reward."""
    seeds = sorted({each.seed for each in found})
    titles = " | ".join(f"seed {seed}" for seed in seeds)
    lines = [
        f"| the user gives | answers | {titles} | mean | learned from | seconds |",
        "|---|---|" + "---|" * (len(seeds) + 3),
    ]
    for way, title in WAYS.items():
        for answers in sorted({each.answers for each in found if each.way == way}):
            rounds = {each.seed: each for each in found if (each.way, each.answers) == (way, answers)}
            rewards = [f"{rounds[seed].held_out:.2f}" if seed in rounds else "" for seed in seeds]
            mean = statistics.fmean(each.held_out for each in rounds.values())
            learned = statistics.fmean(each.learned_from for each in rounds.values())
            seconds = statistics.fmean(each.seconds for each in rounds.values())
            lines.append(
                f"| {title} | {answers} | {' | '.join(rewards)} | {mean:.2f} | {learned:.0f} | {seconds:.0f} |"
            )
    lines += [
        "",
        f"Mean reward on held-out questions, each answered once; {platform.machine()}, one thread. "
        "`PYTHONPATH=benchmarks python -m corrections`.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
