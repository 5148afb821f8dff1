"""Runs in Trinity's environment: the advantages that its classes give to the commits on standard input, as JSON."""

from __future__ import annotations

import json
import sys

import torch
from trinity.algorithm import ADVANTAGE_FN
from trinity.common.experience import EID, Experience

NAMES = {"grpo": "grpo", "multi_step_grpo": "step_wise_grpo"}


def computed(algorithm: str, commit: list[tuple[str, int, float]]) -> list[float]:
    function = ADVANTAGE_FN.get(NAMES[algorithm])
    experiences = [
        Experience(eid=EID(task=task, run=run, suffix=str(place)), tokens=torch.tensor([1, 2]), prompt_length=1,
                   reward=reward)
        for place, (task, run, reward) in enumerate(commit)
    ]  # fmt: skip
    given, _ = function(**function.default_args())(experiences)
    by_place = {int(experience.eid.suffix): float(experience.advantages[0]) for experience in given}
    return [by_place[place] for place in range(len(commit))]


if __name__ == "__main__":
    algorithms, commits = json.load(sys.stdin)
    print(json.dumps({name: [computed(name, commit) for commit in commits] for name in algorithms}))
