"""The embedded engine's advantages beside those that Trinity's own classes compute from the same commit."""

from __future__ import annotations

import json
import random

import pytest
from real_trinity import Installation

from slipstream.embedded.advantages import advantages


def _random_commit(source: random.Random) -> list[tuple[str, int, float]]:
    """Groups of one to six runs of one to five steps, the runs' steps mixed as agents at work mix them."""
    runs = [
        (f"task-{task}", run, source.choice([0.0, 0.1, 0.3, 1.0]))
        for task in range(source.randint(1, 4))
        for run in range(source.randint(1, 6))
    ]
    steps = [run for run in runs for _ in range(source.randint(1, 5))]
    source.shuffle(steps)
    return steps


def test_they_are_trinitys(installation: Installation) -> None:
    source = random.Random(7)
    commits = [_random_commit(source) for _ in range(20)]
    algorithms = ("grpo", "multi_step_grpo")
    of_trinity = installation.run("compute_advantages", given=json.dumps([algorithms, commits]))[0]
    for algorithm in algorithms:
        for commit, expected in zip(commits, of_trinity[algorithm], strict=True):
            assert advantages(algorithm, commit) == pytest.approx(expected, abs=1e-4)
