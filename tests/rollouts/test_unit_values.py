"""The values of units: when they are final, and what each of them is."""

from __future__ import annotations

from typing import Any

import pytest
from rollout_plays import plan

from slipstream.evidence import Session, differences
from slipstream.rollouts.values import FAILED, Range, ended, ends_at, is_drawn, values
from slipstream.store.live_scores import LiveScore
from slipstream.store.rollout_units import AssignedUnit, UnitValues

WITHIN = Range(0.0, 1.0)


def unit(name: str = "u", first_at: float = 100.0, last_at: float | None = None, **fields: Any) -> AssignedUnit:
    well: dict[str, Any] = {"treated": True, "failures": 0, "first_byte": 0.2, "sampled": True}
    return AssignedUnit(name, first_at=first_at, last_at=first_at if last_at is None else last_at, **{**well, **fields})


def valued(of: AssignedUnit, **given: Any) -> UnitValues:
    options: dict[str, Any] = {"scores": None, "feedback": (), "format_component": None, **given}
    found = options.pop("plan", None) or plan()
    within = options.pop("within", WITHIN)
    return values(found, within, of, **options)


def test_a_unit_is_open_until_its_grace_after_the_last_call_or_its_longest_time() -> None:
    of = plan(grace=60, longest_session=600)
    assert ends_at(of, unit(first_at=100, last_at=100)) == 160
    assert ends_at(of, unit(first_at=100, last_at=300)) == 360
    assert ends_at(of, unit(first_at=100, last_at=900)) == 700, "a key that repeats for ever is one unit with one value"


def test_an_open_unit_holds_back_those_that_were_assigned_after_it() -> None:
    of = plan(grace=60, longest_session=600)
    units = [unit("a", 100), unit("b", 110, 300), unit("c", 120), unit("d", 130)]
    assert [each.unit for each in ended(of, units, 200)] == ["a"]
    assert [each.unit for each in ended(of, units, 360)] == ["a", "b", "c", "d"]


def test_late_praise_is_counted_in_the_order_of_assignment() -> None:
    """Complaints come at once, praise 50 s later: with equal versions no difference comes of it at any moment."""
    of, found = plan(grace=60, longest_session=600), []
    units = [unit(str(at), 100 + at, treated=at % 2 == 0) for at in range(100)]
    for now in range(100, 300, 5):
        said = [1.0 if now >= each.first_at + 50 else 0.0 for each in units if each.first_at <= now]
        over = ended(of, units, now)
        sessions = [
            Session(each.treated, valued(each, plan=of, feedback=[reward]).feedback)
            for each, reward in zip(over, said, strict=False)
        ]
        found.append(differences(sessions))
    assert found[-1]
    assert all(difference == 0 for some in found for difference in some)


def test_a_unit_failed_if_any_of_its_calls_failed_or_fell_back() -> None:
    assert valued(unit()).failure == 0
    assert valued(unit(failures=1)).failure == 1
    assert valued(unit(failures=7)).failure == 1


def test_a_unit_is_late_if_any_first_byte_was_over_the_bound() -> None:
    of = plan(guardrails={"latency": {"bound": "2s"}})
    assert valued(unit(first_byte=2.0), plan=of).latency == 0
    assert valued(unit(first_byte=2.1), plan=of).latency == 1
    assert valued(unit(first_byte=0.0), plan=of).latency == 0


def test_feedback_is_the_mean_of_what_was_said_and_the_middle_where_nothing_was() -> None:
    assert valued(unit(), feedback=[1.0, 0.0, 1.0]).feedback == pytest.approx(2 / 3)
    assert valued(unit()).feedback == 0.5
    assert valued(unit(), feedback=[-1.0], within=Range(-1, 1)).feedback == 0
    assert valued(unit(), within=Range(-1, 1)).feedback == 0.5


def test_rewards_are_the_mean_over_the_answers_in_parts_of_the_range() -> None:
    scores = [LiveScore(1.0, {"format": 1.0, "tone": 0.5}), LiveScore(-1.0, {"format": 0.0, "tone": 0.5})]
    of = plan(objective="reward.tone")
    found = valued(unit(), plan=of, within=Range(-1, 1), scores=scores, format_component="format")
    assert found.reward == 0.5
    assert found.format == 0.75
    assert found.component == 0.75


def test_components_are_in_parts_of_their_own_ranges() -> None:
    scores = [LiveScore(0.0, {"format": 0.5, "tool_calls": each}) for each in (-0.1, -0.9)]
    scores.append(LiveScore(None, {FAILED: True}))
    of = plan(objective="reward.tool_calls", ranges={"tool_calls": [-1, 1], "format": [0, 1]})
    each = [valued(unit(), plan=of, scores=[score], format_component="format") for score in scores]
    assert [found.component for found in each] == [pytest.approx(0.45), pytest.approx(0.05), 0]
    assert [found.format for found in each] == [0.5, 0.5, 0]
    beyond = valued(unit(), plan=of, scores=[LiveScore(0.0, {"tool_calls": 7.0})])
    assert beyond.component == 1


def test_an_answer_that_could_not_be_scored_has_the_lowest_value() -> None:
    found = valued(unit(), scores=[LiveScore(None, {FAILED: True}), LiveScore(1.0, {})])
    assert found.reward == 0.5


def test_a_unit_without_a_stored_answer_has_the_lowest_reward() -> None:
    """It failed, or its user left before the end: to leave such units out would compare those alone that went well."""
    assert valued(unit(failures=1), scores=[]).reward == 0
    assert valued(unit(), scores=[]).reward == 0


def test_a_unit_that_the_rate_leaves_out_has_no_reward_whichever_way_it_went() -> None:
    assert valued(unit(sampled=False), scores=[]).reward is None
    assert valued(unit(sampled=False, failures=1), scores=[]).reward is None


def test_a_unit_without_scores_or_a_basis_for_them_is_left_out_of_the_reward() -> None:
    assert valued(unit(), scores=None).reward is None
    assert valued(unit(failures=1), scores=None).reward is None, "whichever way it went: it was not drawn"
    assert valued(unit(), scores=[LiveScore(None, {})]).reward is None


def test_units_are_drawn_by_a_hash_that_their_arm_does_not_depend_on() -> None:
    units = [f"{number:08x}" for number in range(4000)]
    drawn = [each for each in units if is_drawn(each, 0.25)]
    assert 900 < len(drawn) < 1100
    low = sum(each < f"{2000:08x}" for each in drawn)
    assert 400 < low < 600
    assert all(is_drawn(each, 1.0) for each in units)
