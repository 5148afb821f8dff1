"""Figures of judgements: the order in which answers were shown is taken out, and then looked at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slipstream.preferences.figures import figures
from slipstream.store.preference_figures import Judgement
from slipstream.store.preferences import Choice


def judgements(choices: str, right: str = "version:1", left: str = "production", each: int = 1) -> Iterator[Judgement]:
    """A judgement for each letter, `each` a session. Every other pair is shown in the other order.

    `l` and `r` prefer the left and the right answer, `t` is a tie, `n` is for both bad, `s` is skipped.
    """
    for number, letter in enumerate(choices):
        swapped = bool(number % 2)
        choice = {"t": Choice.TIE, "s": Choice.SKIP, "n": Choice.BOTH_BAD}.get(letter)
        if choice is None:
            choice = Choice.A if (letter == "l") != swapped else Choice.B
        yield Judgement(f"{right}-{number}", f"s{number // each}", "ann", left, right, swapped, choice)


def ranked(some: list[Judgement]) -> dict[str, float | None]:
    return {each["answered_by"]: each["strength"] for each in figures(some)["ranking"]}


def test_the_preferred_version_leads_whichever_place_it_had() -> None:
    found = figures([*judgements("rrrrrrrrrrll"), *judgements("llllllllrr", "version:2")])
    assert [each["answered_by"] for each in found["ranking"]] == ["version:1", "production", "version:2"]
    assert found["reference"] == "production"
    assert found["position"]["first_chosen"] == pytest.approx(0.5, abs=0.1)
    first = found["ranking"][0]
    assert first["wins_against_reference"] == pytest.approx(10.5 / 13)
    assert first["judgements"] == 12
    low, high = first["interval"]
    assert 0 < low < first["strength"] < high
    assert found["ranking"][1]["interval"] == [0, 0]


def test_an_order_that_decides_is_seen_and_does_not_make_a_ranking() -> None:
    always_first = [one._replace(choice=Choice.A) for one in judgements("l" * 40)]
    found = figures(always_first)
    assert found["position"]["first_chosen"] == 1
    assert found["position"]["interval"][0] > 0.8
    assert found["annotators"] == [{"annotator": "ann", "judgements": 40, "first_chosen": 1.0}]
    assert ranked(always_first)["version:1"] == pytest.approx(0, abs=1e-6)


def test_ties_and_two_bad_answers_count_half_and_skipped_pairs_nothing() -> None:
    assert ranked(list(judgements("tnss")))["version:1"] == pytest.approx(0, abs=1e-6)
    found = figures(list(judgements("tnss")))
    assert found["judgements"] == {"a": 0, "b": 0, "tie": 1, "both_bad": 1, "skip": 2}
    assert found["ranking"][0]["judgements"] == 2


def test_few_judgements_that_are_all_alike_have_a_wide_interval() -> None:
    found = figures(list(judgements("rrrr")))["ranking"][0]
    assert found["answered_by"] == "version:1"
    low, high = found["interval"]
    assert high - low > 2
    assert low < 0.5, "four judgements are no proof"


def test_judgements_of_one_session_weigh_less_than_those_of_many() -> None:
    choices = ("r" * 30 + "l" * 10) * 3

    def width(each: int) -> float:
        low, high = figures(list(judgements(choices, each=each)))["ranking"][0]["interval"]
        return float(high - low)

    assert width(10) > 2 * width(1), "twelve sessions, and not a hundred and twenty"


def test_runs_of_the_same_version_rank_nobody_and_a_version_without_link_has_no_strength() -> None:
    same = list(judgements("rl", "version:1", "version:1"))
    assert figures(same)["ranking"] == []
    apart = [*judgements("rrr"), *judgements("r", "version:9", "version:8")]
    found = {each["answered_by"]: each for each in figures(apart)["ranking"]}
    assert found["version:9"]["strength"] is None
    assert found["version:9"]["interval"] is None


def test_agreement_is_about_the_answers_and_not_about_their_places() -> None:
    ann = list(judgements("rlrlrrll"))
    bob = [
        one._replace(annotator="bob", swapped=not one.swapped, choice=Choice.B if one.choice is Choice.A else Choice.A)
        for one in ann
    ]
    assert figures([*ann, *bob])["agreement"] == {"alpha": 1.0, "pairs": 8}


def test_without_judgements_there_is_nothing_to_say() -> None:
    assert figures([]) == {
        "judgements": {"a": 0, "b": 0, "tie": 0, "both_bad": 0, "skip": 0},
        "annotators": [],
        "position": {"decided": 0, "first_chosen": None, "interval": None},
        "agreement": {"alpha": None, "pairs": 0},
        "reference": None,
        "ranking": [],
    }
