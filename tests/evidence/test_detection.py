"""The detector of a harm that begins later."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from slipstream.evidence import Detector, EProcess
from slipstream.evidence.betting import BETS


def test_it_is_the_sum_of_e_processes_that_begin_at_each_difference() -> None:
    rng = random.Random(1)
    found = [round(rng.uniform(-0.5, 1), 2) for _ in range(40)]
    factors = [[1 + bet * ((each + 1) / 2 / 0.55 - 1) for each in found] for bet in BETS]
    for length in (2.0, 10.0):
        detector = Detector(0.1, length)
        alarms = [detector.add(each) for each in found]
        sums = [
            sum(math.prod(of_bet[start : end + 1]) for of_bet in factors for start in range(end + 1)) / len(BETS)
            for end in range(len(found))
        ]
        assert alarms == [each >= length for each in sums]
        assert set(alarms) == {False, True}


def test_false_alarms_are_as_rare_as_asked_for() -> None:
    rng, lengths = random.Random(3), []
    for _ in range(300):
        detector, count = Detector(0.0, 100), 1
        while not detector.add(rng.choice((-1.0, 0.0, 1.0))):
            count += 1
        lengths.append(count)
    assert statistics.fmean(lengths) > 100 - 2 * statistics.stdev(lengths) / math.sqrt(len(lengths))


def test_a_late_harm_is_found_sooner_than_by_one_long_test() -> None:
    found = [-0.1] * 500 + [0.4] * 200
    detector, process = Detector(0.0, 1000), EProcess(0.0)
    alarm = next(count for count, each in enumerate(found, 1) if detector.add(each))
    for each in found:
        process.add(each)
        if process.peak >= math.log(1000):
            break
    assert 500 < alarm < 540
    assert process.count > 600


def test_no_number_of_differences_overflows_it() -> None:
    detector = Detector(-0.5, 10)
    assert [detector.add(1.0) for _ in range(5000)][-1]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^margin: expected a number above -1 and below 1, found 1$"):
        Detector(1, 100)
    with pytest.raises(ValueError, match=r"^run_length: expected a number above 1 and below inf, found 1$"):
        Detector(0, 1)
    with pytest.raises(ValueError, match=r"^difference: expected a number from -1 to 1, found 2$"):
        Detector(0, 100).add(2)
