"""The soak: what it takes for a rise and what not, and a short one of everything."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from soak.measured import Plan, measure
from soak.report import draw, judge, report, unexpected
from soak.slope import slope

TIMES = [5.0 * number for number in range(240)]
"""Twenty minutes, a look each five seconds."""


def sawtooth(rng: random.Random, at: float) -> float:
    """A process that takes some and lets it go, with noise: no leak."""
    return 200 + 8 * math.sin(at / 30) + (at % 75) / 10 + rng.gauss(0, 1)


@pytest.mark.parametrize("seed", range(2))
def test_what_comes_and_goes_is_flat_and_a_leak_below_it_is_not(seed: int) -> None:
    rng = random.Random(seed)
    steady = [sawtooth(rng, at) for at in TIMES]
    assert slope(TIMES, steady, block=120).flat(1 / 600)
    leaking = [value + 5 * at / 600 for at, value in zip(TIMES, steady, strict=True)]
    found = slope(TIMES, leaking, block=120)
    assert not found.flat(1 / 600)
    assert found.low < 5 / 600 < found.high


def test_a_burst_is_no_leak_and_a_rise_that_does_not_matter_is_flat() -> None:
    burst = [300.0 if 50 < number < 60 else 200.0 for number in range(len(TIMES))]
    assert slope(TIMES, burst, block=120).flat(1 / 600)
    slow = [200 + 0.5 * at / 600 for at in TIMES]
    assert slope(TIMES, slow, block=120).low > 0
    assert slope(TIMES, slow, block=120).flat(1 / 600)


@pytest.mark.slow
def test_a_short_soak_measures_every_process_and_gets_what_it_expects(tmp_path: Path) -> None:
    measured = measure(Plan(seconds=20, streams=40, capacity=4, share=0.5, seed=1))
    assert not unexpected(measured)
    assert measured.killed, "the training side was killed"
    counts = measured.counts
    assert counts["chats"] > 20
    assert {second.streams for second in measured.seconds[5:]} >= {40}
    assert {"proxy-0", "training", "parent"} <= measured.looks[-1].held.keys()
    assert measured.after["proxy-0"].descriptors <= measured.before["proxy-0"].descriptors + 3
    text = report(measured, judge(measured), "![](soak.png)")
    assert "| training side killed by SIGKILL |" in text
    draw(measured, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000
