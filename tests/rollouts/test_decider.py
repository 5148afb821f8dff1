"""The decider: equal, better, worse and silent versions, and what it never does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_plays import Play, Values, plan, values

from slipstream.rollouts.decider import LaneSight
from slipstream.store.rollout_units import UnitValues
from slipstream.store.rollouts import Verdict
from slipstream.store.states import RolloutState


def likes(control: float, treated: float) -> Values:
    """Units of which these parts like what they got, and the others do not."""

    def of(drawn: random.Random, is_treated: bool) -> UnitValues:
        return values(feedback=float(drawn.random() < (treated if is_treated else control)))

    return of


def fails(control: float, treated: float) -> Values:
    """Units of which these parts fail."""

    def of(drawn: random.Random, is_treated: bool) -> UnitValues:
        return values(failure=float(drawn.random() < (treated if is_treated else control)))

    return of


def test_a_better_version_goes_through_its_steps_and_is_promoted() -> None:
    play = Play(plan())
    play.units(4000, likes(0.4, 0.7))
    assert play.rollout.state is RolloutState.PROMOTED
    assert [change.share for change in play.changes if change.verdict is Verdict.ADVANCE] == [0.2, 0.5, 0.95]
    [promotion] = [change for change in play.changes if change.verdict is Verdict.PROMOTE]
    assert promotion.proven
    assert promotion.share == 0.95, "some users stay with production, as control"
    better = promotion.evidence["objective"]["better"]
    assert better["log_e"] >= better["needed"]
    low, high = promotion.evidence["objective"]["interval"]
    assert 0 < low < 0.3 < high


def test_an_equal_version_comes_to_the_last_step_and_holds_there() -> None:
    play = Play(plan())
    play.units(4000, likes(0.5, 0.5))
    assert play.rollout.state is RolloutState.HOLDING
    assert play.rollout.step == 3
    assert Verdict.PROMOTE not in play.verdicts
    assert play.changes[-1].reason.endswith("; feedback: better is not proven")
    assert play.verdicts.count(Verdict.HOLD) == 4, "once at each step, not at each look"


@pytest.mark.parametrize(
    ("of", "name"), [(likes(0.6, 0.2), "feedback"), (fails(0.01, 0.3), "failure")], ids=["disliked", "failing"]
)
def test_a_worse_version_is_rolled_back_at_its_first_step(of: Values, name: str) -> None:
    play = Play(plan(min_units=100))
    play.units(4000, of)
    assert play.rollout.state is RolloutState.ROLLED_BACK
    assert play.verdicts[-1] is Verdict.ROLL_BACK
    assert play.changes[-1].reason == f"harm is proven: {name}"
    assert play.changes[-1].share == 0
    assert play.rollout.step == 0
    assert play.changes[-1].evidence["guardrails"][name]["harm"]["proven"]
    assert play.look() is None, "what has ended is decided no more"


@pytest.mark.slow
def test_many_equal_versions_are_seldom_rolled_back_or_promoted() -> None:
    ended = []
    for seed in range(40):
        play = Play(plan(steps=[0.5, 0.95]), seed)
        play.units(400, likes(0.5, 0.5))
        ended.append(play.rollout.state)
    assert ended.count(RolloutState.ROLLED_BACK) <= 3
    assert ended.count(RolloutState.PROMOTED) <= 3


def test_silence_is_no_success() -> None:
    play = Play(plan(min_time=60))
    assert play.look() is None
    play.now += 60
    held = play.look()
    assert held is not None
    assert held.verdict is Verdict.HOLD
    assert held.reason == "10 more units of control in this step; 10 more units of treatment in this step"
    assert held.evidence["objective"]["better"]["missing"] is None, "nothing to foresee it by"
    play.now += 365 * 86400
    assert play.look() is None
    assert play.rollout.state is RolloutState.HOLDING


def test_a_version_whose_units_all_say_nothing_is_never_promoted() -> None:
    play = Play(plan())
    play.units(3000, lambda drawn, treated: values())
    assert play.rollout.state is RolloutState.HOLDING
    assert play.rollout.step == 3


def test_a_step_takes_its_time_however_many_units_come() -> None:
    play = Play(plan(min_time=1000, steps=[0.5, 0.95]))
    play.units(999, likes(0.4, 0.9))
    assert play.changes == []
    play.units(1, likes(0.4, 0.9))
    assert play.verdicts == [Verdict.ADVANCE]


def test_not_worse_has_to_be_proven_where_it_is_asked_for() -> None:
    fields = {"steps": [0.5, 0.95], "guardrails": {"failure": {"margin": 0.1}, "latency": None, "feedback": None}}
    silent = plan(**fields)
    asked = plan(**fields, advance="not_worse")
    first, second = Play(silent), Play(asked)
    for play in (first, second):
        play.units(40, fails(0.0, 0.0))
    assert Verdict.ADVANCE in first.verdicts
    assert Verdict.ADVANCE not in second.verdicts
    assert "failure: a loss of 0.1 or more is not refuted" in second.changes[-1].reason
    second.units(200, fails(0.0, 0.0))
    assert Verdict.ADVANCE in second.verdicts


@pytest.mark.parametrize("state", [RolloutState.RUNNING, RolloutState.HOLDING, RolloutState.PAUSED])
def test_a_lane_that_failed_is_left_at_once(state: RolloutState) -> None:
    play = Play(plan(), state=state)
    change = play.look(LaneSight(failed="5 requests in a row"))
    assert change is not None
    assert (change.verdict, change.share) == (Verdict.ROLL_BACK, 0)
    assert change.reason == "the lane failed: 5 requests in a row"


def test_another_version_in_the_lane_ends_the_rollout() -> None:
    change = Play(plan()).look(LaneSight(changed="version 9, step 12"))
    assert change is not None
    assert change.reason == "the lane serves another version: version 9, step 12"


def test_a_paused_rollout_goes_back_and_not_on() -> None:
    play = Play(plan(), state=RolloutState.PAUSED)
    play.units(500, likes(0.3, 0.9))
    assert play.changes == []
    worse = Play(plan(), state=RolloutState.PAUSED)
    worse.units(2000, likes(0.9, 0.1))
    assert worse.verdicts == [Verdict.ROLL_BACK]


def test_nothing_goes_on_while_the_kill_switch_is_on() -> None:
    play = Play(plan(steps=[0.5, 0.95]))
    change = play.look(LaneSight(killed=True))
    assert change is not None
    assert (change.verdict, change.share) == (Verdict.HOLD, 0.5)
    assert play.look(LaneSight(killed=True)) is None


def test_by_hand_nothing_but_a_roll_back_happens_by_itself() -> None:
    play = Play(plan(approval="by_hand", steps=[0.5, 0.95]))
    play.units(500, likes(0.3, 0.9))
    assert play.verdicts == [Verdict.HOLD]
    assert play.rollout.step == 0
    worse = Play(plan(approval="by_hand", steps=[0.5, 0.95]))
    worse.units(500, likes(0.9, 0.1))
    assert worse.verdicts[-1] is Verdict.ROLL_BACK


def test_a_promoted_version_that_becomes_worse_goes_back() -> None:
    play = Play(plan(steps=[0.5, 0.95]))
    play.units(3000, likes(0.4, 0.8))
    assert play.rollout.state is RolloutState.PROMOTED
    play.units(1000, likes(0.4, 0.8))
    assert play.rollout.state is RolloutState.PROMOTED, "a winner does not un-win"
    play.units(20_000, likes(0.8, 0.2))
    assert play.rollout.state is RolloutState.ROLLED_BACK
    assert play.changes[-1].reason.startswith("worse since the promotion: ")


def test_the_level_of_the_stream_decides_about_a_promotion() -> None:
    first, late = Play(plan(steps=[0.5])), Play(plan(steps=[0.5]), level=1e-12)
    for play in (first, late):
        play.units(130, likes(0.3, 0.8))
    assert first.rollout.state is RolloutState.PROMOTED
    assert late.rollout.state is RolloutState.HOLDING
    late.units(3000, likes(0.3, 0.8))
    assert late.rollout.state is RolloutState.PROMOTED


_UNITS = st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 0.5, 1.0])), max_size=120)


@settings(max_examples=60, deadline=None)
@given(units=_UNITS, least=st.integers(1, 8))
def test_whatever_comes_no_rule_of_a_decision_is_broken(units: list[tuple[bool, float, float]], least: int) -> None:
    play = Play(plan(min_units=least, steps=[0.5, 0.9]))
    proven: set[str] = set()
    for treated, failure, feedback in units:
        before = play.rollout
        play.unit(treated, values(failure=failure, feedback=feedback))
        harmed = set(play.comparison.harmed)
        assert proven <= harmed, "what was proven stays proven"
        proven = harmed
        assert len(play.changes) <= 1 or play.changes[-1].state is play.rollout.state
        if proven:
            assert play.rollout.state is RolloutState.ROLLED_BACK
        if play.rollout.step > before.step:
            of_step = play.changes[-1].evidence["units_of_step"]
            # of the step that was just begun there is none; those before had enough
            assert of_step["needed"] == least
            assert min(play.comparison.units) >= least
        if play.rollout.state is RolloutState.PROMOTED and before.state is not RolloutState.PROMOTED:
            assert play.changes[-1].evidence["objective"]["better"]["proven"]
        if play.rollout.ended_at is not None:
            break
    assert play.verdicts.count(Verdict.PROMOTE) <= 1
    assert play.verdicts.count(Verdict.ROLL_BACK) <= 1
