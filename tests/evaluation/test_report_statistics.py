"""Means, errors and paired differences of reports, beside the formulas of arXiv:2411.00640."""

from __future__ import annotations

import math
import random

import pytest

from slipstream.evaluation.reports.document import CasePart, ModelPart, Report, SettingsPart
from slipstream.evaluation.reports.html import html
from slipstream.evaluation.reports.markdown import markdown
from slipstream.evaluation.reports.names import Kind
from slipstream.evaluation.reports.summary import difference_of, mean_of
from slipstream.evaluation.reports.wording import part_held


def cases_of(values: list[tuple[str, float | None, float | None]], measure: str = "recall") -> list[CasePart]:
    """Cases with their session, and the values of the models a and b."""
    return [
        CasePart(case=f"c{n}", key=f"k{n}", session=session, values={"a": {measure: a}, "b": {measure: b}})
        for n, (session, a, b) in enumerate(values)
    ]


def test_errors_count_sessions_and_differences_are_paired() -> None:
    values = [("s", 1.0, 0.0), ("s", 1.0, 0.5), ("t", 0.0, 0.0), ("u", 0.5, 0.5), ("v", None, 1.0)]
    cases = cases_of(values)
    mean = mean_of(cases, "a", "recall", 0.05)
    within = [(1 - 0.625) * 2, 0 - 0.625, 0.5 - 0.625]  # what the sessions differ from the mean, added up
    error = math.sqrt(3 / 2 * sum(each**2 for each in within)) / 4
    assert (mean.mean, mean.count, mean.sessions) == (0.625, 4, 3)
    assert mean.standard_error == pytest.approx(error, abs=1e-6)
    assert mean.interval == pytest.approx((0.625 - 1.959964 * error, 0.625 + 1.959964 * error), abs=1e-5)
    found = difference_of(cases, "a", "b", "recall", width=1.0, margin=0.05, level=0.05)
    by_session = [0.75, 0.0, 0.0]
    spread = math.sqrt(sum((each - 0.25) ** 2 for each in by_session) / 2 / 3)
    assert (found.difference, found.sessions, found.cases) == (0.25, 3, 4)
    assert found.standard_error == pytest.approx(spread, abs=1e-6)
    assert found.interval == pytest.approx((0.25 - 1.959964 * spread, 0.25 + 1.959964 * spread), abs=1e-5)
    assert found.always is not None
    assert found.always[0] < 0 < found.always[1], "three sessions prove nothing"


def test_rewards_and_seconds_are_told_in_their_own_unit() -> None:
    rewards = difference_of(
        cases_of([(f"s{n}", 1.0, -1.0) for n in range(40)]), "a", "b", "recall", width=2.0, margin=0.05, level=0.05
    )
    assert (rewards.difference, rewards.verdict) == (2.0, "better")
    assert rewards.always is not None
    assert rewards.always[1] == 2.0
    seconds = difference_of(
        cases_of([(f"s{n}", 30.0 + n, 90.0) for n in range(4)], "latency"),
        "a",
        "b",
        "latency",
        width=0,
        margin=0.05,
        level=0.05,
    )
    assert (seconds.difference, seconds.verdict, seconds.always) == (-58.5, None, None)
    assert seconds.standard_error == pytest.approx(math.sqrt(5 / 3 / 4), abs=1e-4)


def test_the_interval_has_the_true_difference_as_often_as_it_says() -> None:
    chance, times = random.Random(5), 400
    inside = 0
    for _ in range(times):
        drawn = [(f"s{n // 3}", chance.gauss(n // 3 % 7, 1), chance.gauss(n // 3 % 7 + 0.2, 1)) for n in range(150)]
        found = difference_of(cases_of(drawn, "latency"), "b", "a", "latency", width=0, margin=0.05, level=0.05)
        assert found.interval is not None
        inside += found.interval[0] <= 0.2 <= found.interval[1]
    assert 0.92 <= inside / times <= 0.98


def test_intervals_have_the_name_of_their_level() -> None:
    mean = mean_of(cases_of([("s", 1.0, None), ("t", 0.0, None)]), "a", "recall", 0.1)
    model = ModelPart(
        name="a", kind=Kind.URL, model="a", version=None, away=None, reason=None, answers={}, measures={"recall": mean}
    )
    settings = SettingsPart(
        source="cases", cases_digest="d", repeat=1, parameters={}, end_to_end="reward", digest="d", range=(0, 1),
        level=0.1, margin=0.05, against=None,
    )  # fmt: skip
    report = Report(slipstream="1", made_at="now", settings=settings, models=[model], pairs=[], conditions=[], cases=[])
    for text in (html(report), markdown(report)):
        assert "interval (90%)" in text.replace("\\", "")
        assert "95%" not in text
    assert "with its 90% interval" in html(report)
    assert [part_held(level) for level in (0.05, 0.01, 0.025, 0.001)] == ["95%", "99%", "97.5%", "99.9%"]


def test_without_a_case_of_both_nothing_is_said() -> None:
    found = difference_of(
        cases_of([("s", 1.0, None), ("t", None, 1.0)]), "a", "b", "recall", width=1.0, margin=0.05, level=0.05
    )
    assert (found.difference, found.interval, found.verdict) == (None, None, "not_enough_data")
    assert (found.sessions, found.cases) == (0, 0)
