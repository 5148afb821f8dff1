"""The strengths of Bradley and Terry: likelihood equations, what one knows in closed form, and the intervals."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.preferences.ranking import strengths
from slipstream.preferences.resampling import resampled

_REPEATABLE = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)  # the same cases each time, on a machine that may be busy

NAMES = ("production", "version:1", "version:2", "version:3")
PAIRS = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1])
WINS = st.dictionaries(PAIRS, st.integers(0, 50), max_size=12)
PRIOR = 0.5


def beats(one: float, other: float) -> float:
    return 1 / (1 + math.exp(other - one))


@_REPEATABLE
@given(WINS)
def test_each_wins_as_often_as_its_strength_says(wins: dict[tuple[str, str], int]) -> None:
    """The likelihood is greatest where the expected wins of each are its wins, those of the prior included."""
    found = strengths(wins, "production")
    met = {frozenset(pair) for pair in wins}
    for one in found:
        rivals = [other for other in found if frozenset((one, other)) in met]
        won = sum(wins.get((one, other), 0) + PRIOR for other in rivals)
        expected = sum(
            (wins.get((one, other), 0) + wins.get((other, one), 0) + 2 * PRIOR) * beats(found[one], found[other])
            for other in rivals
        )
        assert won == pytest.approx(expected, abs=1e-4)


@_REPEATABLE
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_of_two_it_is_the_log_of_the_odds(won: int, lost: int) -> None:
    found = strengths({("v", "production"): won, ("production", "v"): lost}, "production")
    assert found["v"] == pytest.approx(math.log((won + PRIOR) / (lost + PRIOR)))
    assert found["production"] == 0


@_REPEATABLE
@given(WINS, st.permutations(NAMES))
def test_names_do_not_matter(wins: dict[tuple[str, str], int], others: list[str]) -> None:
    renamed = dict(zip(NAMES, others, strict=True))
    there = {(renamed[one], renamed[other]): count for (one, other), count in wins.items()}
    before, after = strengths(wins, "production"), strengths(there, renamed["production"])
    assert {renamed[name]: value for name, value in before.items()} == pytest.approx(after, abs=1e-5)


@_REPEATABLE
@given(WINS, st.sampled_from(NAMES[1:]), st.integers(0, 20))
def test_one_more_win_makes_stronger(wins: dict[tuple[str, str], int], winner: str, won: int) -> None:
    pair = winner, "production"
    before = strengths({**wins, pair: won}, "production")
    after = strengths({**wins, pair: won + 1}, "production")
    assert after[winner] > before[winner]


def test_one_who_was_never_compared_with_the_others_has_no_strength() -> None:
    wins = {("version:1", "production"): 3, ("version:2", "version:3"): 5}
    assert set(strengths(wins, "production")) == {"production", "version:1"}


def test_strengths_that_are_close_are_found_from_any_start() -> None:
    wins = {("version:1", "production"): 30, ("production", "version:1"): 10, ("version:2", "version:1"): 7}
    far = {"version:1": 9.0, "version:2": -9.0}
    assert strengths(wins, "production", far) == pytest.approx(strengths(wins, "production"), abs=1e-5)


@pytest.mark.slow
def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Sessions of five judgements that go the same way: taken one by one they would promise far too much."""
    drawn, held, trials = random.Random(5), 0, 100
    for _ in range(trials):
        sessions = [Counter({("v", "p") if drawn.random() < 0.7 else ("p", "v"): 5}) for _ in range(40)]
        imagined = [Counter({("v", "p"): 1}), Counter({("p", "v"): 1})]

        def strength(some: list[Counter[tuple[str, str]]]) -> dict[str, float]:
            wins: Counter[tuple[str, str]] = Counter()
            for each in some:
                wins.update(each)
            return {"v": strengths(wins, "p")["v"]}

        low, high = resampled([*sessions, *imagined], strength)["v"]
        held += low <= math.log(0.7 / 0.3) <= high
    assert held >= 88
