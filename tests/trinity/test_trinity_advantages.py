"""The embedded engine's advantages beside those that Trinity's own classes compute from the same commit."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from real_trinity import PYTHON

from slipstream.embedded.advantages import advantages

COMPUTE = Path(__file__).with_name("compute_advantages.py")


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


def test_they_are_trinitys() -> None:
    source = random.Random(7)
    commits = [_random_commit(source) for _ in range(20)]
    algorithms = ("grpo", "multi_step_grpo")
    computed = subprocess.run(
        [str(PYTHON), str(COMPUTE)], input=json.dumps([algorithms, commits]),
        env=os.environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert computed.returncode == 0, computed.stderr
    of_trinity = json.loads(computed.stdout.splitlines()[-1])
    for algorithm in algorithms:
        for commit, expected in zip(commits, of_trinity[algorithm], strict=True):
            assert advantages(algorithm, commit) == pytest.approx(expected, abs=1e-4)
