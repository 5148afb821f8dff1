"""Schedules that break everything on purpose, a test each. `make chaos` runs ten times as many."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEEDS = range(20)
AT_ONCE = 4
"""A schedule mostly waits: for timeouts, for what was killed to start."""


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[int, Future[tuple[int, str]]]]:
    """By seed: the exit code of its schedule and what it said; several run at once."""

    async def run(seed: int) -> tuple[int, str]:
        folders = (HERE, HERE.parent / "support", HERE.parent / "trinity", HERE.parents[1] / "benchmarks")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chaos", "--seeds", str(seed)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield {seed: threads.submit(asyncio.run, run(seed)) for seed in SEEDS}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_whatever_breaks(outcomes: dict[int, Future[tuple[int, str]]], seed: int) -> None:
    code, said = outcomes[seed].result()
    assert code == 0, said
