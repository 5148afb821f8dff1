"""The stage of rollouts over a store: what it counts and decides, also after it was cut off at any point."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from contexts import context
from rollout_store import NOW, OPERATOR, VERSION, Decided
from stores import ON_BOTH_STORES, stored_rows

from slipstream.capture.retention import UNITS_KEPT, Retention
from slipstream.rewards import RewardModel
from slipstream.rewards.calculator import Reward
from slipstream.rollouts.commands import by_hand, shown
from slipstream.rollouts.decider import LaneSight
from slipstream.stages.agenda import Agenda
from slipstream.stages.context import Stage
from slipstream.store import audit, rollout_units, rollouts, serving, tasks
from slipstream.store.clock_skew import bring_back
from slipstream.store.database import Database
from slipstream.store.rollouts import Verdict
from slipstream.store.states import RolloutState
from slipstream.tenants import DEFAULT, qualified
from slipstream.trajectory import Run

pytestmark = ON_BOTH_STORES

BOTH = (False, True)
A_DAY = 86400.0
WELL_AND_FAILING = {"failures": (0, 1)}


@pytest.fixture
async def decided(database: Database) -> AsyncIterator[Decided]:
    made = Decided(database, rewards={"calculators": ["exact_match"]})
    await made.start()
    yield made
    await made.close()


async def test_the_version_is_put_into_the_lane_before_users_are_assigned(decided: Decided) -> None:
    await decided.open()
    assert await decided.served() == (None, 0)
    decided.lane.problem = "there is no checkpoint 8"
    await decided.pass_(1)
    assert (await decided.rollout()).state is RolloutState.PENDING
    assert decided.stage.waits == "there is no checkpoint 8"
    decided.lane.problem = None
    await decided.pass_(1)
    rollout = await decided.rollout()
    assert decided.lane.placed == [VERSION]
    assert (rollout.share, rollout.lane_step) == (0.5, 101)
    assert decided.stage.waits is None
    assert await decided.served() == (VERSION, 0.5)


async def test_a_rollout_is_for_the_lane_in_which_it_began(decided: Decided) -> None:
    """With another one in the settings nobody is routed: its answers would be counted as this version's."""
    await decided.open()
    for share in (0.5, 0.95):
        await decided.pass_(0)
        async with decided.database.read() as session:
            served = await serving.current(session)
        assert (served.share, served.lane) == (share, "http://127.0.0.1:8020/v1")
        if share == 0.5:
            await by_hand(decided.context, decided.stage, 1, Verdict.ADVANCE, OPERATOR)


async def test_a_version_that_fails_is_rolled_back_and_noted_once(decided: Decided) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.units(BOTH * 20, **WELL_AND_FAILING)
    await decided.pass_(120)
    rollout = await decided.rollout()
    assert rollout.state is RolloutState.ROLLED_BACK
    assert rollout.reason == "harm is proven: failure"
    assert await decided.served() == (None, 0)
    actions = await decided.audited()
    assert actions.count("rollout_roll_back") == 1
    async with decided.database.read() as session:
        last = (await rollouts.decisions(session, 1))[-1]
    assert last["key"] == "(decider)"
    assert last["evidence"]["guardrails"]["failure"]["means"] == {"control": 0.0, "treatment": 1.0}


async def _users_like_it(decided: Decided) -> None:
    for number in range(120):
        treated = number % 2 == 1
        await decided.assign(f"u{number}", treated)
        await decided.say(await decided.call(f"u{number}", treated), float(treated))


async def test_a_version_that_users_like_is_promoted(decided: Decided) -> None:
    await decided.open()
    await decided.pass_(0)
    await _users_like_it(decided)
    await decided.pass_(120)
    assert (await decided.rollout()).step == 1
    await decided.units(BOTH * 6)
    await decided.pass_(120)
    rollout = await decided.rollout()
    assert rollout.state is RolloutState.PROMOTED
    assert rollout.proven
    assert await decided.served() == (VERSION, 0.95)
    assert (await decided.audited())[-1] == "rollout_promote"


async def _set_back(decided: Decided) -> None:
    decided.now = NOW
    async with decided.database.write() as session:
        await bring_back(session, NOW, tolerated=5)


async def test_harm_is_seen_of_a_rollout_that_began_while_the_clock_was_ahead(decided: Decided) -> None:
    decided.now = NOW + A_DAY
    await decided.open()
    await decided.pass_(0)
    await decided.units(BOTH * 3)
    await decided.pass_(120)
    await decided.units(BOTH * 3)  # not counted yet
    await _set_back(decided)
    await decided.units(BOTH * 20, **WELL_AND_FAILING)
    await decided.pass_(120)
    rollout = await decided.rollout()
    assert rollout.state is RolloutState.ROLLED_BACK
    assert rollout.reason == "harm is proven: failure"


async def test_the_detectors_watch_a_version_that_was_promoted_while_the_clock_was_ahead(decided: Decided) -> None:
    decided.now = NOW + A_DAY
    await decided.open()
    await decided.pass_(0)
    await _users_like_it(decided)
    await decided.pass_(120)
    await decided.units(BOTH * 6)
    await decided.pass_(120)
    assert (await decided.rollout()).state is RolloutState.PROMOTED
    await _set_back(decided)
    evidence = (await shown(decided.context, decided.stage, 1))["evidence"]
    assert evidence["objective"]["better"]["proven"], "what came before the promotion is none of the detectors'"
    await decided.units(BOTH * 60, **WELL_AND_FAILING)
    await decided.pass_(120)
    rollout = await decided.rollout()
    assert rollout.state is RolloutState.ROLLED_BACK
    assert rollout.reason is not None
    assert "worse since the promotion: failure" in rollout.reason


async def test_units_count_in_the_order_of_assignment_and_once(decided: Decided, store_url: str) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.assign("first", False)
    await decided.assign("goes-on", True, last_at=decided.now + 90)
    await decided.assign("third", False)
    await decided.pass_(70)
    counted = "SELECT unit FROM rollout_units ORDER BY id"
    assert await stored_rows(store_url, counted) == [("first",)], "what is open holds back what came later"
    await decided.pass_(100)
    assert await stored_rows(store_url, counted) == [("first",), ("goes-on",), ("third",)]
    await decided.pass_(100)
    assert len(await stored_rows(store_url, counted)) == 3


async def test_units_of_a_rollout_that_ended_long_ago_are_deleted_and_its_evidence_is_still_shown(
    decided: Decided, store_url: str
) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.units(BOTH * 3)
    await decided.pass_(120)
    retention = Retention(
        decided.database, decided.metrics, retention=60, audit_retention=86400, clock=lambda: decided.now
    )
    units = "SELECT count(*) FROM rollout_units"
    for ends, left in ((False, 6), (True, 0)):
        if ends:
            await by_hand(decided.context, decided.stage, 1, Verdict.ABORT, OPERATOR)
        decided.now += UNITS_KEPT + 1
        while await retention.step():
            pass
        assert await stored_rows(store_url, units) == [(left,)], "those of one that goes on are evidence"
    found = await shown(decided.context, decided.stage, 1)
    assert found["evidence"]["units"] == {"control": 3, "treatment": 3}


async def test_who_looks_at_it_reads_no_unit_again(decided: Decided, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty thousand units take seconds, in which nothing else is done."""
    await decided.open()
    await decided.pass_(0)
    await decided.units(BOTH * 3)
    await decided.pass_(120)
    read = []
    whole = rollout_units.counted_after

    async def noted(*about: Any) -> Any:
        found = await whole(*about)
        read.extend(found)
        return found

    monkeypatch.setattr(rollout_units, "counted_after", noted)
    for _ in range(2):
        found = await shown(decided.context, decided.stage, 1)
        assert found["evidence"]["units"] == {"control": 3, "treatment": 3}
    await by_hand(decided.context, decided.stage, 1, Verdict.ABORT, OPERATOR)
    assert read == []
    assert (await shown(decided.context, decided.stage, 1))["evidence"]["units"] == {"control": 3, "treatment": 3}


async def test_feedback_counts_until_a_unit_is_final(decided: Decided, store_url: str) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.assign("u", True)
    first, second = await decided.call("u", True), await decided.call("u", True)
    await decided.say(first, 0.0)
    await decided.say(first, 1.0)
    await decided.say(second, 0.0)
    await decided.pass_(60)
    await decided.say(second, 1.0)
    await decided.pass_(60)
    assert await stored_rows(store_url, "SELECT feedback FROM rollout_units") == [(0.5,)]


async def test_silence_holds(decided: Decided) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.pass_(86400)
    rollout = await decided.rollout()
    assert rollout.state is RolloutState.HOLDING
    assert (await decided.audited()).count("rollout_hold") == 1
    assert await decided.served() == (VERSION, 0.5)


async def test_the_breaker_of_the_lane_ends_the_rollout(decided: Decided) -> None:
    await decided.open()
    await decided.pass_(0)
    decided.lane.sight = LaneSight(failed="5 requests in a row")
    await decided.pass_(0)
    assert (await decided.rollout()).state is RolloutState.ROLLED_BACK


@pytest.mark.slow
async def test_a_repeated_comparison_of_a_version_begins_with_nothing(decided: Decided, store_url: str) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.units(BOTH * 20, **WELL_AND_FAILING)
    await decided.pass_(120)
    again = await decided.open()
    assert (again.id, again.position, again.state) == (2, 2, RolloutState.PENDING)
    await decided.pass_(120)
    assert (await decided.rollout(2)).state is RolloutState.HOLDING
    assert await stored_rows(store_url, "SELECT * FROM rollout_units WHERE rollout_id = 2") == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("module", "name"),
    [(audit, "note"), (serving, "serve"), (rollouts, "carry_out"), (rollout_units, "count")],
    ids=["audit", "serving", "decision", "units"],
)
async def test_cut_off_at_any_point_it_comes_to_the_same_decision_and_notes_it_once(
    decided: Decided, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    await decided.open()
    await decided.pass_(0)
    await decided.units(BOTH * 20, **WELL_AND_FAILING)
    whole = getattr(module, name)

    async def cut_off(*arguments: Any) -> Any:
        await whole(*arguments)
        raise ConnectionResetError

    before = await decided.audited(), await decided.served()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, cut_off)
        for _ in range(3):
            with pytest.raises(ConnectionResetError):
                await decided.pass_(120)
    assert (await decided.audited(), await decided.served()) == before, "all of a decision, or nothing"
    await decided.pass_(0)
    assert (await decided.rollout()).state is RolloutState.ROLLED_BACK
    assert (await decided.audited()).count("rollout_roll_back") == 1


@pytest.mark.slow
async def test_answers_of_both_arms_are_scored_by_the_same_calculators(decided: Decided, store_url: str) -> None:
    await decided.open(objective="reward")
    await decided.pass_(0)
    for number in range(8):
        treated = number % 2 == 1
        await decided.assign(f"u{number}", treated)
        await decided.call(f"u{number}", treated, "well" if number < 6 else "badly")
        await decided.call(f"u{number}", treated, "well")
    await decided.pass_(120)
    rewards = "SELECT treated, reward FROM rollout_units ORDER BY id"
    found = [(bool(treated), reward) for treated, reward in await stored_rows(store_url, rewards)]
    assert found == [(number % 2 == 1, 1.0 if number < 6 else 0.5) for number in range(8)]
    scores = "SELECT value FROM live_scores ORDER BY call_id"
    assert [value for (value,) in await stored_rows(store_url, scores)] == [1.0] * 12 + [0.0, 1.0] * 2


@pytest.mark.slow
async def test_a_lane_that_fails_does_not_wait_for_slow_calculators(
    decided: Decided, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane is looked at each time that a few units are scored."""
    await decided.open(objective="reward")
    await decided.pass_(0)
    for number in range(60):
        await decided.assign(f"u{number}", number % 2 == 1)
        await decided.call(f"u{number}", number % 2 == 1)
    score = RewardModel.score

    async def slow(model: RewardModel, run: Run) -> Reward:
        decided.lane.sight = LaneSight(failed="5 requests in a row")
        return await score(model, run)

    monkeypatch.setattr(RewardModel, "score", slow)
    await decided.pass_(120)
    assert (await decided.rollout()).state is RolloutState.ROLLED_BACK
    [(scored,)] = await stored_rows(store_url, "SELECT count(*) FROM live_scores")
    assert 0 < scored <= 20


async def test_no_more_is_scored_than_the_hours_budget(decided: Decided, store_url: str) -> None:
    await decided.open(objective="reward", scoring={"calls_per_hour": 3})
    await decided.pass_(0)
    for number in range(6):
        await decided.assign(f"u{number}", number % 2 == 1)
        await decided.call(f"u{number}", number % 2 == 1)
        await decided.call(f"u{number}", number % 2 == 1)
    await decided.pass_(120)
    rewards = [reward for (reward,) in await stored_rows(store_url, "SELECT reward FROM rollout_units ORDER BY id")]
    assert rewards == [1.0, 1.0, None, None, None, None], "a unit is scored whole, or not at all"


async def test_silence_of_the_user_is_the_middle_for_the_calculator_of_feedback_too(
    database: Database, store_url: str
) -> None:
    """The lowest would have versions compared by who speaks up."""
    decided = Decided(database, rewards={"calculators": ["feedback"], "clip": [-1, 1]})
    await decided.start()
    await decided.open(objective="reward")
    await decided.pass_(0)
    for name, said in (("up", 1.0), ("silent", None), ("down", -1.0)):
        await decided.assign(name, True)
        call = await decided.call(name, True)
        if said is not None:
            await decided.say(call, said)
    await decided.pass_(120)
    rewards = [reward for (reward,) in await stored_rows(store_url, "SELECT reward FROM rollout_units ORDER BY id")]
    assert rewards == [1.0, 0.5, 0.0]
    await decided.close()


async def test_over_budget_no_unit_counts_whichever_way_it_went(decided: Decided, store_url: str) -> None:
    await decided.open(objective="reward", scoring={"calls_per_hour": 1})
    await decided.pass_(0)
    await decided.assign("first", True)
    await decided.call("first", True)
    await decided.assign("failed", True, failures=1)
    await decided.pass_(120)
    rewards = [reward for (reward,) in await stored_rows(store_url, "SELECT reward FROM rollout_units ORDER BY id")]
    assert rewards == [1.0, None], "failures alone would be taken for what versions are worth"


async def test_what_is_deleted_has_no_score(decided: Decided, store_url: str) -> None:
    await decided.open(objective="reward")
    await decided.pass_(0)
    await decided.assign("u", True)
    name = await decided.call("u", True)
    await decided.pass_(120)
    assert len(await stored_rows(store_url, "SELECT * FROM live_scores")) == 1
    async with decided.database.write() as session:
        await tasks.delete_tasks(session, [qualified(DEFAULT, name)])
    assert await stored_rows(store_url, "SELECT * FROM live_scores") == []


async def test_the_agenda_wakes_it_while_there_is_a_rollout(decided: Decided) -> None:
    made, stages = context(decided.database, decided.metrics, lambda: NOW)
    agenda = Agenda(made)
    await agenda.step()
    assert Stage.ROLLOUTS not in stages.woken
    await decided.open()
    await agenda.step()
    await agenda.step()
    assert stages.woken.count(Stage.ROLLOUTS) == 2
    await decided.pass_(0)
    decided.lane.sight = LaneSight(failed="it is away")
    await decided.pass_(0)
    stages.woken.clear()
    await agenda.step()
    assert Stage.ROLLOUTS not in stages.woken
