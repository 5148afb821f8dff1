"""The stage of experiments over a store: what it counts and decides, also when it was cut off or the time is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from contexts import context
from experiment_store import Tried
from rollout_store import OPERATOR, VERSION
from sqlalchemy import text
from stores import ON_BOTH_STORES, stored_rows

from slipstream.capture.retention import UNITS_KEPT, Retention
from slipstream.errors import RequestError
from slipstream.rollouts.commands import shown as rollout_shown
from slipstream.rollouts.decider import LaneSight
from slipstream.stages.agenda import Agenda
from slipstream.stages.context import Stage
from slipstream.store import erasure, experiments, rollout_units, rollouts, serving
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.states import ExperimentState, RolloutState
from slipstream.tenants import DEFAULT, qualified

pytestmark = ON_BOTH_STORES

LIKED, DISLIKED = (0.0, 1.0), (1.0, 0.0)
"""Feedback on the answers of `a` and of `b`."""


@pytest.fixture
async def tried(database: Database) -> AsyncIterator[Tried]:
    made = Tried(database, rewards={"calculators": ["exact_match"]})
    await made.start()
    yield made
    await made.close()


async def test_the_winner_by_evidence_gets_the_traffic_as_a_promoted_version(tried: Tried, store_url: str) -> None:
    await tried.try_(decision="switch_traffic", force=True)
    assert await tried.served() == (None, 0)
    await tried.pass_(1)
    assert tried.lane.placed == [VERSION]
    assert await tried.served() == (VERSION, 0.5)
    await tried.users(60, feedback=LIKED)
    await tried.pass_(120)
    experiment = await tried.experiment()
    assert (experiment.state, experiment.winner, experiment.rollout_id) == (ExperimentState.DECIDED, "b", 1)
    assert experiment.reason == "feedback: b is better than a, proven at the level 0.05"
    rollout = await tried.rollout()
    assert (rollout.state, rollout.proven, rollout.lane_step) == (RolloutState.PROMOTED, False, 101)
    assert await tried.served() == (VERSION, 0.95)
    assert await tried.audited() == [
        *("experiment_start", "experiment_begin", "experiment_decide"),
        *("rollout_open", "rollout_begin", "rollout_promote", "experiment_switch"),
    ]
    assert await stored_rows(store_url, "SELECT state FROM versions") == [("live",)]
    measured = (await tried.shown())["report"]["metrics"]["feedback"]
    assert (measured["a"]["mean"], measured["b"]["mean"]) == (0.0, 1.0)
    assert measured["claims"]["b_better"]["proven"]
    assert measured["a"]["interval"][1] < measured["b"]["interval"][0]


@pytest.mark.slow
async def test_a_loser_leaves_the_traffic_with_production(tried: Tried, store_url: str) -> None:
    await tried.try_(decision="switch_traffic", force=True)
    await tried.pass_(0)
    await tried.users(60, feedback=DISLIKED)
    await tried.pass_(120)
    experiment = await tried.experiment()
    assert (experiment.state, experiment.winner, experiment.rollout_id) == (ExperimentState.DECIDED, "a", None)
    assert await tried.served() == (None, 0)
    assert await stored_rows(store_url, "SELECT state FROM versions") == [("seen",)]


@pytest.mark.slow
async def test_a_winner_without_a_verdict_or_that_harms_otherwise_gets_no_traffic(tried: Tried) -> None:
    with pytest.raises(RequestError, match="expected the verdict better or equal") as refused:
        await tried.try_(decision="switch_traffic")
    assert refused.value.code == "no_verdict"
    await tried.try_(decision="switch_traffic", force=True)
    await tried.pass_(0)
    await tried.users(60, feedback=LIKED, failures=1)
    await tried.pass_(200)
    experiment = await tried.experiment()
    assert (experiment.winner, experiment.rollout_id) == ("b", None)
    assert experiment.reason is not None
    assert experiment.reason.endswith("the traffic stays with production: b is proven worse by failure")
    assert await tried.served() == (None, 0)


@pytest.mark.slow
async def test_after_its_time_the_last_units_are_waited_for_and_then_it_is_decided(tried: Tried) -> None:
    await tried.try_(ends="duration", duration=1000)
    await tried.pass_(0)
    await tried.users(60, feedback=LIKED)
    await tried.pass_(500)
    assert (await tried.experiment()).state is ExperimentState.RUNNING, "proven, and not over"
    tried.now += 430
    await tried.users(2, "late", feedback=LIKED)
    await tried.assign("open", True)
    call = await tried.call("open", True)
    await tried.pass_(20)
    experiment = await tried.experiment()
    assert experiment.state is ExperimentState.SETTLING
    assert await tried.served() == (None, 0)
    await tried.say(call, 1.0)
    await tried.pass_(80)
    shown = await tried.shown()
    assert (shown["state"], shown["winner"]) == ("decided", "b")
    assert shown["report"]["arms"]["b"]["units"] == 32, "a unit that was open when the time was over counts"
    assert shown["report"]["metrics"]["feedback"]["b"]["mean"] == 1.0, "and what is said before it is final"


async def test_where_data_is_missing_when_its_time_is_over_nothing_is_decided(tried: Tried) -> None:
    await tried.try_(ends="evidence", duration=100, decision="switch_traffic", force=True)
    await tried.pass_(0)
    await tried.users(4, feedback=LIKED)
    await tried.pass_(100)
    await tried.pass_(61)
    experiment = await tried.experiment()
    assert (experiment.state, experiment.winner) == (ExperimentState.INCONCLUSIVE, None)
    assert experiment.reason is not None
    assert experiment.reason.startswith("3 more units of a; 3 more units of b; feedback: neither arm is proven better")
    assert await tried.served() == (None, 0)


async def test_only_units_that_it_assigned_count_and_once(tried: Tried, store_url: str) -> None:
    await tried.assign("of another share", True)
    await tried.try_()
    await tried.pass_(0)
    await tried.users(4, feedback=LIKED)
    late = await tried.call("u0", False)
    await tried.pass_(200)
    await tried.say(late, 1.0)
    await tried.pass_(200)
    rows = await stored_rows(store_url, "SELECT unit FROM experiment_units ORDER BY id")
    assert rows == [("u0",), ("u1",), ("u2",), ("u3",)]
    assert (await tried.shown())["report"]["metrics"]["feedback"]["a"]["mean"] == 0.0, "said after it was final"


@pytest.mark.slow
async def test_tokens_that_streams_do_not_say_are_no_cost_and_withhold_a_result(tried: Tried) -> None:
    async def use(calls: str, **answer: Any) -> None:
        packed = pack({"choices": [], **answer})
        async with tried.database.write() as session:
            await session.execute(text(f"UPDATE calls SET answer = :answer WHERE {calls}"), {"answer": packed})

    await tried.try_(metrics=["cost"], token_bound=1000)
    await tried.pass_(0)
    await tried.users(80)
    await use("arm = 'control'", usage={"prompt_tokens": 300, "completion_tokens": 600})
    await use("arm = 'treatment'", usage={"total_tokens": 100})
    await use("unit IN ('u1', 'u3', 'u5', 'u7')")
    await tried.pass_(200)
    shown = await tried.shown()
    measured = shown["report"]["metrics"]["cost"]
    assert (measured["a"]["mean"], measured["b"]["mean"], measured["b"]["without"]) == (900.0, 100.0, 4)
    assert measured["unit"] == "tokens"
    assert (shown["state"], measured["comparable"]) == ("running", False)
    assert "0 of 40 of a and 4 of 40 of b have an answer that does not say its tokens" in shown["missing"]["reasons"][0]
    await tried.users(60, "more")
    await use("unit LIKE 'more%' AND arm = 'control'", usage={"total_tokens": 900})
    await use("unit LIKE 'more%' AND arm = 'treatment'", usage={"total_tokens": 100})
    await tried.pass_(200)
    assert (await tried.experiment()).winner is None, "4 of 70 are still more than one in twenty"
    await tried.users(40, "still")
    await use("unit LIKE 'still%'", usage={"total_tokens": 100})
    await tried.pass_(200)
    assert (await tried.experiment()).winner == "b"


@pytest.mark.slow
async def test_rewards_and_latency_are_values_of_both_arms(tried: Tried) -> None:
    await tried.try_(metrics=["reward", "latency", "failure"], latency_bound=2, ends="by_hand")
    await tried.pass_(0)
    for number in range(8):
        treated = number % 2 == 1
        await tried.assign(f"u{number}", treated, slowest=9.0 if treated else 0.5)
        await tried.call(f"u{number}", treated, "well" if treated else "badly")
    await tried.pass_(120)
    found = (await tried.shown())["report"]["metrics"]
    means = {name: (one["a"]["mean"], one["b"]["mean"]) for name, one in found.items()}
    assert means == {"reward": (0.0, 1.0), "latency": (0.5, 2.0), "failure": (0.0, 0.0)}
    assert (found["latency"]["difference"], found["latency"]["better"]) == (1.5, "less")
    await tried.pass_(90 * 86400)
    assert (await tried.experiment()).state is ExperimentState.RUNNING, "a static split stays for as long as wanted"


@pytest.mark.slow
async def test_equal_arms_are_decided_within_the_margin(tried: Tried) -> None:
    await tried.try_(margin=0.5, decision="switch_traffic", force=True)
    await tried.pass_(0)
    await tried.users(60)
    await tried.pass_(120)
    experiment = await tried.experiment()
    assert (experiment.state, experiment.winner) == (ExperimentState.DECIDED, "equal")
    assert await tried.served() == (None, 0)


@pytest.mark.parametrize("seen", [LaneSight(failed="5 in a row"), LaneSight(changed="its step 7")])
async def test_a_lane_that_fails_or_changes_ends_it(tried: Tried, seen: LaneSight) -> None:
    await tried.try_()
    await tried.pass_(0)
    tried.lane.sight = seen
    await tried.pass_(0)
    experiment = await tried.experiment()
    assert experiment.state is ExperimentState.FAILED
    assert experiment.reason is not None
    assert (seen.failed or seen.changed or "") in experiment.reason
    assert await tried.served() == (None, 0)


async def test_a_version_whose_checkpoint_is_gone_fails_it_and_leaves_the_lane_to_others(tried: Tried) -> None:
    await tried.try_()
    tried.lane.problem = "there is no checkpoint 8"
    await tried.pass_(1)
    assert (await tried.shown())["missing"]["lane"] == "there is no checkpoint 8"
    await tried.pass_(600)
    experiment = await tried.experiment()
    assert experiment.state is ExperimentState.FAILED
    assert experiment.reason == "version 8 did not come into the lane within 600 s: there is no checkpoint 8"
    await tried.open()


async def test_a_kill_ends_it_in_its_own_transaction_and_a_revival_does_not_bring_it_back(tried: Tried) -> None:
    await tried.try_(min_units=100)
    await tried.pass_(0)
    await tried.users(4, feedback=LIKED)
    await tried.pass_(120)
    async with tried.database.write() as session:
        await serving.kill(session, tried.now)
        await experiments.killed(session, OPERATOR, tried.now)
        await serving.revive(session, tried.now)
    await tried.pass_(10)
    found = await tried.shown()
    assert (found["state"], found["report"]["arms"]["b"]["units"]) == ("stopped", 2)
    assert await tried.served() == (None, 0)


async def test_rollouts_and_experiments_exclude_each_other(tried: Tried) -> None:
    await tried.try_()
    for begun in (False, True):
        if begun:
            await tried.pass_(0)
        for other, code in ((tried.open, "experiment_open"), (tried.try_, "experiment_open")):
            with pytest.raises(RequestError) as refused:
                await other()
            assert (refused.value.status, refused.value.code) == (409, code)
    await tried.stop()
    await tried.open()
    with pytest.raises(RequestError, match="rollout 1 of version 8 is pending") as refused:
        await tried.try_()
    assert (refused.value.status, refused.value.code) == (409, "rollout_open")


async def test_a_stop_says_who_gets_the_traffic_also_after_the_end(tried: Tried) -> None:
    await tried.try_(ends="by_hand", metrics=["latency"])
    with pytest.raises(RequestError, match="it is pending: its b cannot get the traffic"):
        await tried.stop("b", force=True)
    await tried.pass_(0)
    with pytest.raises(RequestError, match="expected the verdict better or equal"):
        await tried.stop("b")
    assert (await tried.stop()).state is ExperimentState.STOPPED
    with pytest.raises(RequestError, match="it is stopped"):
        await tried.stop()
    assert (await tried.stop("a")).rollout_id is None, "which it has"
    tried.lane.problem = "there is no checkpoint 8"
    with pytest.raises(RequestError, match="version 8 does not come into the lane: there is no checkpoint 8"):
        await tried.stop("b", force=True)
    tried.lane.problem = None
    stopped = await tried.stop("b", force=True)
    assert (stopped.state, stopped.rollout_id) == (ExperimentState.STOPPED, 1)
    assert await tried.served() == (VERSION, 0.95)
    assert (await tried.rollout()).plan["objective"] == "feedback", "latency is no objective of a rollout"
    with pytest.raises(RequestError, match="its b has the traffic by rollout 1"):
        await tried.stop("a")


async def test_a_rollout_that_an_experiment_opened_is_read_after_its_end(tried: Tried) -> None:
    """The evidence beside its decisions is the experiment's report."""
    await tried.try_(ends="by_hand")
    await tried.pass_(0)
    await tried.stop("b", force=True)
    async with tried.database.write() as session:
        await rollouts.end_all(session, tried.now)
    async with tried.database.read() as session:
        verdict = (await tried.verdicts.of(session, [VERSION]))[VERSION]
    assert (verdict["verdict"], verdict["sources"]) == ("not_enough_data", [])
    found = await rollout_shown(tried.context, tried.stage, 1)
    assert found["evidence"]["units"] == {"control": 0, "treatment": 0}
    assert {"guardrails", "objective"} < found["evidence"].keys()
    assert found["decisions"][-2]["evidence"]["arms"]["b"]["variant"] == "version:8"


async def test_a_stop_that_is_refused_leaves_the_lane_to_the_version_that_it_serves(tried: Tried) -> None:
    await tried.try_(ends="by_hand")
    await tried.pass_(0)
    await tried.stop()
    await tried.open()
    await tried.pass_(0)
    placed = list(tried.lane.placed)
    with pytest.raises(RequestError, match="rollout 1 of version 8 is ") as refused:
        await tried.stop("b", force=True)
    assert (refused.value.status, refused.value.code) == (409, "rollout_open")
    assert tried.lane.placed == placed


async def test_arms_that_the_lane_cannot_serve_are_refused_in_words(tried: Tried) -> None:
    for arms, param, words in (
        ({"a": "version:7"}, "a", "the lane serves one version"),
        ({"b": "gpt-4.1"}, "b", "another model than a version can be compared if a lane serves it"),
        ({"b": "version:9"}, "b", "there is no version 9"),
    ):
        with pytest.raises(RequestError, match=words) as refused:
            await tried.try_(**arms)
        assert refused.value.param == param


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"),
    [(experiments, "carry_out"), (rollouts, "carry_out"), (rollout_units, "count")],
    ids=["decision", "promotion", "units"],
)
async def test_cut_off_at_any_point_it_comes_to_the_same_decision_and_notes_it_once(
    tried: Tried, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    await tried.try_(decision="switch_traffic", force=True)
    await tried.pass_(0)
    await tried.users(60, feedback=LIKED)
    whole = getattr(module, name)

    async def cut_off(*arguments: Any) -> Any:
        await whole(*arguments)
        raise ConnectionResetError

    before = await tried.audited(), await tried.served()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, cut_off)
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                await tried.pass_(120)
    assert (await tried.audited(), await tried.served()) == before, "all of a decision, or nothing"
    await tried.pass_(0)
    assert (await tried.experiment()).winner == "b"
    assert (await tried.audited()).count("experiment_decide") == 1


async def test_what_is_deleted_leaves_numbers_alone_and_units_go_with_time(tried: Tried, store_url: str) -> None:
    await tried.try_(ends="by_hand")
    await tried.pass_(0)
    await tried.users(4, feedback=LIKED)
    await tried.pass_(120)
    async with tried.database.write() as session:
        await erasure.erase(session, "task_id", qualified(DEFAULT, "u0-1"), tried.now)
    rows = await stored_rows(store_url, "SELECT unit FROM experiment_units ORDER BY id")
    assert rows == [(None,), ("u1",), ("u2",), ("u3",)]
    await tried.pass_(120)
    assert (await tried.shown())["report"]["arms"]["a"]["units"] == 2
    await tried.stop()
    retention = Retention(tried.database, tried.metrics, retention=60, audit_retention=86400, clock=lambda: tried.now)
    tried.now += UNITS_KEPT + 1
    while await retention.step():
        pass
    assert await stored_rows(store_url, "SELECT * FROM experiment_units") == []
    assert (await tried.shown())["report"]["arms"]["a"]["units"] == 2, "what was found stays"


async def test_the_agenda_wakes_it_while_there_is_an_experiment(tried: Tried) -> None:
    made, stages = context(tried.database, tried.metrics, lambda: tried.now)
    agenda = Agenda(made)
    await tried.try_()
    await agenda.step()
    assert Stage.EXPERIMENTS in stages.woken
    await tried.stop()
    stages.woken.clear()
    await agenda.step()
    assert Stage.EXPERIMENTS not in stages.woken


async def test_a_restored_store_has_no_experiment_under_way(tried: Tried) -> None:
    await tried.try_()
    await tried.pass_(0)
    async with tried.database.write() as session:
        await experiments.end_all(session, tried.now)
    experiment = await tried.experiment()
    assert experiment.state is ExperimentState.STOPPED
    assert experiment.reason is not None
    assert experiment.reason.startswith("the store was restored from a backup")
    assert await tried.served() == (None, 0)
