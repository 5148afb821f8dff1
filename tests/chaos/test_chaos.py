"""Schedules that break everything on purpose, a test each: one in the fast tier, twenty in all.

`make chaos` runs ten times as many.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SEEDS = (2, 10, 44, 46, 49, 60, 70, 76, 87, 94, 101, 109, 190, 208, 212, 215, 229, 234, 236, 246)
"""Each fault is in one of them, and every kind of world: both stores, two sidecars, the scripted and the embedded
Explorer, the webhook, and encryption on both stores."""
IN_EACH_TEST = 94
"""The fast tier's, where the sidecar, its training side and production break; the others are slow."""
AT_ONCE = 2
"""A schedule mostly waits: for timeouts, for what was killed to start. More of them, beside other tests, would wait for
each other's starts, and end before they have settled."""
PATHS = [HERE, HERE.parent / "support", HERE.parent / "trinity", HERE.parents[1] / "benchmarks"]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[int, Future[tuple[int, str]]]]:
    """By seed: the exit code of its schedule and what it said; several run at once."""
    cases = [item for item in request.session.items if item.path == request.path and "seed" in item.fixturenames]
    asked = [case.callspec.params["seed"] for case in cases]

    async def run(seed: int) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "chaos", "--seeds", str(seed)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, PATHS))},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, said.decode()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield {seed: threads.submit(asyncio.run, run(seed)) for seed in asked}


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed == IN_EACH_TEST else pytest.mark.slow) for seed in SEEDS]
)
def test_nothing_is_lost_whatever_breaks(outcomes: dict[int, Future[tuple[int, str]]], seed: int) -> None:
    code, said = outcomes[seed].result()
    assert code == 0, said


def test_each_fault_is_in_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in PATHS:
        monkeypatch.syspath_prepend(path)
    from chaos.faults import FAULTS
    from chaos.schedule import schedule_of

    schedules = [schedule_of(seed) for seed in SEEDS]
    assert {step.fault.name for schedule in schedules for step in schedule.steps} == set(FAULTS)
    assert {(schedule.store, schedule.sidecars) for schedule in schedules} == {
        ("sqlite", 1),
        ("postgresql", 1),
        ("postgresql", 2),
    }
    assert {schedule.explorer for schedule in schedules} == {"scripted", "embedded"}
    assert {schedule.store for schedule in schedules if schedule.encrypted} == {"sqlite", "postgresql"}
    assert {schedule.sidecars for schedule in schedules if schedule.webhook} == {1, 2}
    assert any(schedule.repairs for schedule in schedules)
