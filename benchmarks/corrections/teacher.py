"""Does the policy use a correction in its prompt? Writes a part of docs/corrections.md.

    PYTHONPATH=benchmarks python -m corrections.teacher [--tasks 12] [--write docs/corrections.md]

The base model answers questions of the demo: as they are, and as the teacher that has read what a user said of an
answer without a call. A teacher that is no better than the policy has nothing to teach.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.region import unwritable, write

from corrections.__main__ import ROOT, WAYS
from corrections.policy import Answering
from corrections.user import Task, Words, answered, held_out_tasks, prompt, training_tasks, words
from slipstream.datasets.corrections import corrected_prompt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, default=ROOT / ".cache" / "models" / "smollm2")
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--write", type=Path, help="the page whose part is replaced")
    arguments = parser.parse_args()
    if arguments.write is not None and (why := unwritable(arguments.write, "teacher")):
        parser.error(f"--write: {why}")
    policy = Answering(arguments.base)
    tasks = training_tasks(1, arguments.tasks, held_out_tasks(48))
    ways: list[Words | None] = [None, "vague", "exact"]
    text = "\n".join(
        ["| the user's words in the prompt | questions | reward |", "|---|---|---|"]
        + [f"| {WAYS[way] if way else 'none'} | {len(tasks)} | {_reward(policy, tasks, way):.2f} |" for way in ways]
        + ["", f"`PYTHONPATH=benchmarks python -m corrections.teacher --tasks {arguments.tasks}`"]
    )
    print(text)
    if arguments.write is not None:
        write(arguments.write, "teacher", text)


def _reward(policy: Answering, tasks: Sequence[Task], how: Words | None) -> float:
    """The mean reward of an answer to each question."""
    prompts = []
    for task in tasks:
        said = None if how is None else words(answered(task, ""), how)
        prompts.append(prompt(task) if said is None else corrected_prompt(prompt(task), said))
    given, _ = policy.answers(tasks, 2, prompts)
    return statistics.fmean(each.score.reward for each in given)


if __name__ == "__main__":
    main()
