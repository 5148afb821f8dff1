"""Two sidecars on one PostgreSQL, killed in turn, for some seconds of what `make soak-cluster` does for minutes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_is_delivered_twice_or_in_part() -> None:
    folders = (TESTS / "chaos", TESTS / "support", TESTS / "trinity", TESTS.parent / "benchmarks")
    ended = subprocess.run(
        [sys.executable, "-m", "chaos.alternating_kills", "--minutes", "0.25", "--agents", "3"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    table = dict(re.findall(r"^\| (.+) \| ([\d,]+) \|$", ended.stdout, re.MULTILINE))
    kills, groups, lost = (
        int(value.replace(",", ""))
        for what in ("kills", "groups", "acknowledged and lost")
        for name, value in table.items()
        if name.startswith(what)
    )
    assert kills >= 2
    assert groups > 5
    assert lost == 0
