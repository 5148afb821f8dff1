"""A schedule of faults with Trinity's own code as the Explorer, which the other tiers do not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PATHS = [TESTS / "chaos", TESTS / "support", TESTS / "trinity", TESTS.parent / "benchmarks"]
SEED = 177


@pytest.mark.slow
def test_nothing_is_lost_whatever_breaks() -> None:
    schedule = subprocess.run(
        [sys.executable, "-m", "chaos", "--seeds", str(SEED)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
        capture_output=True, text=True,
    )  # fmt: skip
    assert "explorer: trinity" in schedule.stdout
    assert schedule.returncode == 0, schedule.stdout + schedule.stderr
