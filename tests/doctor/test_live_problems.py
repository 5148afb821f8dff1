"""What the sidecar sees of itself: `problems` of /status and the gauge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contexts import parse_memory
from engines import ExplorerWithEngines
from loops import Loop, RunLoop
from planted import Plant
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from serving import serving, until

from slipstream.doctor import live
from slipstream.doctor.live import RECENT, STALE, problems
from slipstream.doctor.moment import Moment
from slipstream.explorer.client import ExplorerClient
from slipstream.explorer.watch import ExplorerWatch
from slipstream.metrics import Metrics
from slipstream.settings.sidecar import Settings
from slipstream.store.answered_versions import OtherVersion
from slipstream.store.commits import end
from slipstream.store.constant_components import ConstantComponent
from slipstream.store.database import Database
from slipstream.store.health import Health, Served, health
from slipstream.store.outbox import Waiting
from slipstream.store.outcomes import Outcomes
from slipstream.store.states import CommitState
from slipstream.store.tables.commits import CommitRow
from slipstream.store.versions import record_version

NOW = 1_800_000_000.0
CHAT = "/v1/chat/completions"
DAY = 86400.0


@pytest.fixture
def fine(plant: Plant) -> Moment:
    """A sidecar for which everything goes well: version 3 came a minute ago."""
    settings = plant().sidecar
    return Moment(
        now=NOW,
        settings=settings.model_copy(
            update={"explorer": settings.explorer.model_copy(update={"train_batch_size": 32})}
        ),
        explorer_up=True,
        explorer_error=None,
        explorer_since=NOW - DAY,
        breaker="closed",
        webhook="closed",
        webhook_error=None,
        versions=(3, 3),
        apart_since=None,
        dropped_at=None,
        waiting=3,
        store_full=False,
        health=Health(
            served=Served(version=3, seen_at=NOW - 60, last_commit=7, experiences_since=32, rolled_back_from=None),
            delivered=320,
            last_delivery=NOW - 90,
            untrained=0,
            commits_lost=0,
            groups_dropped=0,
            facade_lost=0,
            facade_reason=None,
            runs_pending=4,
            quarantined={"exchange": 0, "task": 0, "run": 0},
            passed_over={},
            outcomes=Outcomes(runs=160, groups=20),
            ready=12,
            ready_since=NOW - 60,
        ),
    )


def store(fine: Moment, **changes: Any) -> Moment:
    return replace(fine, health=replace(fine.health, **changes))


def test_when_everything_goes_well(fine: Moment) -> None:
    assert problems(fine) == []
    assert problems(store(fine, served=None, delivered=0)) == [], "before the first version was seen"


def test_an_explorer_away_is_told_after_ten_seconds(fine: Moment) -> None:
    away = replace(fine, explorer_up=False, explorer_error="GET /metrics: ConnectError", explorer_since=NOW - 9)
    assert problems(away) == []
    assert [found.code for found in problems(replace(away, explorer_since=NOW - 10))] == ["live.explorer_away"]
    [found] = problems(replace(away, explorer_since=NOW - 720, breaker="open"))
    assert (found.code, found.severity) == ("live.explorer_away", "error")
    assert found.found == "away for 12 min: GET /metrics: ConnectError"


def test_a_breaker_that_is_open(fine: Moment) -> None:
    [found] = problems(replace(fine, breaker="open", explorer_up=False, explorer_since=NOW - 1))
    assert (found.code, found.found) == ("live.breaker_open", "the circuit breaker is open")
    assert [found.code for found in problems(replace(fine, breaker="half_open"))] == ["live.breaker_open"]


def test_an_endpoint_of_replays_that_is_away(fine: Moment) -> None:
    [found] = problems(replace(fine, webhook="open", webhook_error="ConnectError: refused"))
    assert (found.code, found.where) == ("live.webhook_away", "runs.webhook.url")
    assert found.found == "the circuit breaker is open; the last try: ConnectError: refused"


def test_a_receiver_of_webhooks_has_ten_minutes_to_take_an_event(fine: Moment) -> None:
    behind = Waiting("ops", 3, NOW - 900, NOW - 599, "HTTP 500")
    assert problems(replace(fine, receivers=[Waiting("away", 9, NOW - 900), behind])) == []
    [found] = problems(replace(fine, receivers=[replace(behind, failing_since=NOW - 720)]))
    assert (found.code, found.where) == ("live.webhook_receiver_fails", "webhooks.receivers")
    assert found.found == "ops: 3 events wait, one for 12 min; its last try: HTTP 500"


def test_engines_have_time_to_meet(fine: Moment) -> None:
    apart = replace(fine, versions=(2, 3), apart_since=NOW - 60)
    assert problems(apart) == []
    [found] = problems(replace(apart, apart_since=NOW - 2 * STALE))
    assert (found.code, found.found) == ("live.engines_apart", "versions 2 and 3 for 30 min")


def test_a_trainer_that_does_not_consume(fine: Moment) -> None:
    served = Served(version=3, seen_at=NOW - 2 * DAY, last_commit=7, experiences_since=64, rolled_back_from=None)
    stuck = store(fine, served=served, last_delivery=NOW - STALE, untrained=32)
    [found] = problems(stuck)
    assert (found.code, found.severity) == ("live.trainer_does_not_consume", "error")
    assert "64 experiences were delivered since version 3 appeared 48 h ago, 32 of them more than 15 min" in found.found
    assert found.found.endswith("; a batch is 32")
    assert problems(store(stuck, served=replace(served, experiences_since=63))) == [], "less than two batches"
    assert problems(store(stuck, served=replace(served, seen_at=NOW - 60))) == [], "it came a minute ago"
    assert problems(store(stuck, untrained=0)) == [], "they were delivered just now"


def test_without_a_batch_size_a_large_one_is_assumed(fine: Moment, plant: Plant) -> None:
    served = Served(version=3, seen_at=NOW - DAY, last_commit=7, experiences_since=600, rolled_back_from=None)
    stuck = replace(store(fine, served=served, untrained=300), settings=plant().sidecar)
    [found] = problems(stuck)
    assert found.found.endswith("a batch of 256 is assumed (explorer.train_batch_size)")


def test_leftovers_are_told_after_a_day(fine: Moment) -> None:
    left = store(fine, delivered=332)
    assert problems(left) == []
    [found] = problems(store(left, last_delivery=NOW - 2 * DAY))
    assert (found.code, found.found) == (
        "live.leftovers_wait",
        "about 12 experiences; a batch is 32, and the last commit was 48 h ago",
    )


@pytest.mark.parametrize(
    ("lost", "code"),
    [
        ({"commits_lost": 2}, "live.commits_lost"),
        ({"groups_dropped": 3}, "live.groups_dropped"),
        ({"facade_lost": 1, "facade_reason": "the Explorer restarted"}, "live.facade_feedback_lost"),
    ],
)
def test_what_was_lost_lately(fine: Moment, lost: dict[str, Any], code: str) -> None:
    [found] = problems(store(fine, **lost))
    assert found.code == code
    assert "in the last 60 min" in found.found


def test_calls_that_were_not_captured(fine: Moment) -> None:
    [found] = problems(replace(fine, dropped_at=NOW - 90))
    assert (found.code, found.found) == ("live.capture_drops", "the last one was dropped 90 s ago")
    assert problems(replace(fine, dropped_at=NOW - RECENT)) == []


def test_a_full_queue_of_runs(fine: Moment) -> None:
    [found] = problems(store(fine, runs_pending=997))
    assert (found.code, found.found) == ("live.runs_queue_full", "997 runs wait, and 1000 may")


def test_nothing_is_selected_and_the_reason_is_told(fine: Moment) -> None:
    [found] = problems(store(fine, passed_over={"sampling": 3, "labels": 30, "undecided": 99}))
    assert (found.code, found.found) == (
        "live.nothing_selected",
        "none of 33 tasks; the commonest reason is labels (30)",
    )
    assert problems(store(fine, passed_over={"labels": 4, "undecided": 99})) == []
    assert len(problems(store(fine, passed_over={"labels": 5}))) == 1


def test_a_low_rate_of_sampling_is_no_problem(fine: Moment) -> None:
    assert problems(store(fine, passed_over={"not_sampled": 200})) == []


def test_what_is_set_apart_is_a_problem(fine: Moment) -> None:
    [found] = problems(store(fine, quarantined={"exchange": 2, "task": 0, "run": 1}))
    assert (found.code, found.found) == ("live.quarantined", "exchanges: 2, runs: 1")


def test_a_store_that_is_full_or_behind(fine: Moment) -> None:
    [found] = problems(replace(fine, store_full=True))
    assert (found.code, found.where) == ("live.store_full", "limits.store_bytes")
    [found] = problems(replace(fine, waiting=10_001))
    assert (found.code, found.found) == (
        "live.store_behind",
        "10001 exchanges wait to be stored; capture.queue is 20000",
    )
    assert problems(replace(fine, waiting=10_000)) == []


def came_to(fine: Moment, **outcomes: Any) -> Moment:
    return store(fine, outcomes=Outcomes(**outcomes))


def test_nothing_is_scored_and_the_reason_is_told(fine: Moment) -> None:
    [found] = problems(came_to(fine, runs=3, unscored=3, scoring_failure="no reference"))
    assert (found.code, found.found) == (
        "live.nothing_scored",
        "none of the newest 3 runs; the newest failed because: no reference",
    )
    assert problems(came_to(fine, runs=2, unscored=2, scoring_failure="no reference")) == []


def test_every_run_fails_and_the_reason_is_told(fine: Moment) -> None:
    [found] = problems(came_to(fine, runs=8, failed=8, failure="400 context_length_exceeded"))
    assert (found.code, found.severity, found.found) == (
        "live.runs_fail",
        "error",
        "all of the newest 8 runs; the newest because: 400 context_length_exceeded",
    )
    assert problems(came_to(fine, runs=8, failed=7, groups=1)) == [], "one of them has a reward"


def test_a_calculator_that_raises_for_some_runs_is_told(fine: Moment) -> None:
    [found] = problems(came_to(fine, runs=40, unscored=2, scoring_failure="worth: ValueError", groups=5))
    assert (found.code, found.found) == (
        "live.scoring_fails",
        "2 of the newest 40 runs; the newest because: worth: ValueError",
    )


def algorithm(moment: Moment, name: str | None) -> Moment:
    explorer = moment.settings.explorer.model_copy(update={"algorithm_type": name})
    return replace(moment, settings=moment.settings.model_copy(update={"explorer": explorer}))


def test_groups_of_one_are_told_where_groups_are_compared(fine: Moment) -> None:
    alone = came_to(fine, runs=3, groups=3, single=3)
    [found] = problems(alone)
    assert found.code == "live.groups_of_one"
    assert found.found.startswith("3 of the newest 3 groups have one reward; runs.repeat_time is ")
    assert found.found.endswith("; the algorithm: grpo is assumed (explorer.algorithm_type)")
    assert problems(algorithm(alone, "gspo"))[0].found.endswith("; the algorithm: gspo")
    assert problems(algorithm(alone, "ppo")) == []
    assert problems(came_to(fine, runs=2, groups=2, single=2)) == []
    assert problems(came_to(fine, runs=80, groups=10, single=4)) == [], "some runs of a group may fail"


def test_rewards_that_are_equal_in_each_group_are_told(fine: Moment) -> None:
    equal = came_to(fine, runs=40, groups=5, equal=5)
    [found] = problems(equal)
    assert (found.code, found.found) == (
        "live.rewards_equal",
        "all rewards are equal in each of the newest 5 groups; "
        "the algorithm: grpo is assumed (explorer.algorithm_type)",
    )
    assert problems(algorithm(equal, "ppo")) == []
    assert problems(came_to(fine, runs=40, groups=20, equal=19)) == [], "one of them teaches something"


def test_rewards_that_no_commit_takes_are_told(fine: Moment) -> None:
    interval = fine.settings.commit.interval
    late = store(fine, ready_since=NOW - 3 * interval - 1, last_delivery=None)
    [found] = problems(late)
    assert (found.code, found.severity) == ("live.not_committed", "error")
    assert found.found == "12 experiences wait for 15 min; commit.interval is 5 min, there was none before"
    assert problems(store(late, last_delivery=NOW - interval)) == []
    assert problems(store(late, ready=0)) == [], "fewer than commit.min_experiences wait"
    assert problems(store(late, ready_since=NOW - 3 * interval)) == []

    daily = Settings(commit={"schedule": "0 3 * * *"})
    assert problems(replace(late, settings=daily)) == []
    [found] = problems(replace(store(late, ready_since=NOW - 3 * 86400 - 1), settings=daily))
    assert found.found == '12 experiences wait for 72 h; commit.schedule is "0 3 * * *" (UTC), there was none before'


def test_a_version_like_the_one_before_is_told(fine: Moment) -> None:
    [found] = problems(store(fine, weights_like=2))
    assert (found.code, found.severity) == ("live.weights_unchanged", "error")
    assert found.found == "version 3 has the weights of version 2"


def test_a_version_other_than_the_one_that_is_said_or_asked_for_is_told(fine: Moment) -> None:
    [found] = problems(replace(fine, other_version=OtherVersion(answers=40, compared=50, said=3, recorded=2)))
    assert (found.code, found.severity) == ("live.other_version", "error")
    assert found.found == (
        "40 of the newest 50 answers were not given by the version that it said, mostly by version 2 instead of 3"
    )
    behind = replace(fine, published=(5, NOW - 2 * STALE))
    [found] = problems(behind)
    assert found.found == "the Explorer serves version 3, and the Trainer's directory names version 5 for 30 min"
    assert problems(replace(behind, published=(5, NOW - 60))) == [], "it has time to load it"
    assert problems(replace(behind, explorer_since=NOW - 60)) == [], "it has only just come"
    assert problems(replace(fine, published=(3, NOW - DAY), lane_steps=(4, 4))) == []
    [found] = problems(replace(fine, lane_steps=(4, 5)))
    assert (found.code, found.where) == ("live.other_version", "serving.lane")
    assert problems(replace(fine, lane_steps=(4, None))) == [], "no share is set"


def test_a_calculator_that_gives_one_value_is_told(fine: Moment) -> None:
    [found] = problems(replace(fine, constant=[ConstantComponent("judge", 0.0, runs=200, tasks=31)]))
    assert (found.code, found.severity) == ("live.judge_constant", "warning")
    assert found.found == "judge gave 0 to each of the newest 200 runs that it scored, of 31 tasks"


async def test_the_running_sidecar_tells_it_in_status_and_metrics(run_loop: RunLoop) -> None:
    explorer = ExplorerWithEngines()
    async with run_loop(explorer, rewards={"calculators": []}) as loop:
        assert (await loop.status())["problems"] == []
        for number in range(10):
            await loop.chat(f"question {number}")

        async def told() -> list[dict[str, str]]:
            problems: list[dict[str, str]] = (await loop.status())["problems"]
            return problems

        [problem] = await until(told)
        assert problem["code"] == "live.nothing_scored"
        assert set(problem) == {"code", "severity", "where", "found", "why", "fix"}
        text = (await loop.client.get("/metrics")).text
    [gauge] = [each for each in text_string_to_metric_families(text) if each.name == "slipstream_problems"]
    values = {sample.labels["code"]: sample.value for sample in gauge.samples}
    assert values == {each.code: float(each.code == "live.nothing_scored") for each in live.PROBLEMS}


async def test_that_nothing_is_selected_is_told_until_something_is(run_loop: RunLoop) -> None:
    async with run_loop(selection={"explicit_mark": {}}) as loop:
        for number in range(20):
            await loop.chat(f"question {number}")

        async def told() -> list[dict[str, str]]:
            problems: list[dict[str, str]] = (await loop.status())["problems"]
            return problems

        async def of_all() -> bool:  # it is told from the fifth task on
            found = [(problem["code"], problem["found"]) for problem in await told()]
            return found == [("live.nothing_selected", "none of 20 tasks; the commonest reason is no_mark (20)")]

        await until(of_all)
        await loop.chat("question 20", {"x-slipstream-mark": "good"})
        await until(lambda: loop.ready(1))
        assert await told() == []


async def problem_of(loop: Loop) -> dict[str, str]:
    """The one problem that the running sidecar tells, once it does."""

    async def told() -> list[dict[str, str]]:
        problems: list[dict[str, str]] = (await loop.status())["problems"]
        return problems

    [problem] = await until(told)
    return problem


@pytest.mark.slow
async def test_that_every_run_is_refused_is_told_though_others_were_scored_before(run_loop: RunLoop) -> None:
    async with run_loop(explorer={"algorithm_type": "ppo"}, runs={"repeat_time": 2}) as loop:
        await loop.chat("hello")
        await until(lambda: loop.ready(2))
        for number in range(20):
            loop.explorer.faults.setdefault(CHAT, []).extend([400, 400])
            await loop.chat(f"question {number}")

        async def refused() -> bool:
            return (await loop.status())["runs"].get("failed") == 40

        await until(refused)
        problem = await problem_of(loop)
        assert problem["code"] == "live.runs_fail"
        assert problem["found"].startswith("all of the newest 40 runs; the newest because: ")
        assert "400" in problem["found"]


@pytest.mark.slow
@pytest.mark.parametrize("repeat_time", [1, 2])
async def test_groups_that_teach_nothing_are_told(run_loop: RunLoop, repeat_time: int) -> None:
    async with run_loop(explorer={"algorithm_type": "grpo"}, runs={"repeat_time": repeat_time}) as loop:
        for number in range(5):
            await loop.chat(f"question {number}")
        await until(lambda: loop.ready(5 * repeat_time))
        problem = await problem_of(loop)
        assert problem["code"] == ("live.groups_of_one" if repeat_time == 1 else "live.rewards_equal")


async def test_an_explorer_that_is_not_there_is_told(run_loop: RunLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_AWAY", 0.1)
    async with run_loop(explorer={"base_url": "http://127.0.0.1:9"}) as loop:
        problem = await problem_of(loop)
        assert problem["code"] == "live.explorer_away"
        assert "Connect call failed" in problem["found"]


@pytest.mark.slow
async def test_commits_that_the_explorer_loses_are_told(run_loop: RunLoop) -> None:
    async with run_loop(ExplorerWithEngines()) as loop:
        await loop.chat("hello")
        await until(lambda: loop.ready(1))
        loop.explorer.faults["/commit"] = [500]
        await loop.commit()
        [problem] = (await loop.status())["problems"]
        assert (problem["code"], problem["found"]) == ("live.commits_lost", "commits lost in the last 60 min: 1")


async def test_the_watch_knows_since_when(tmp_path: Path) -> None:
    explorer, now = ExplorerWithEngines(), [1000.0]
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/store.db")
    await database.open()
    async with serving(explorer.app()) as url:
        client = ExplorerClient(url, parse_memory(), model=None, chat_timeout=5, connect_timeout=5)
        watch = ExplorerWatch(database, client, Metrics(CollectorRegistry()), clock=lambda: now[0])
        await watch.step()
        assert (watch.since, watch.apart_since) == (1000.0, None)
        explorer.version, explorer.other_versions = 3, [4]
        for now[0] in (2000.0, 3000.0):
            await watch.step()
            assert (watch.version, watch.newest, watch.apart_since) == (3, 4, 2000.0)
        explorer.version = 4
        await watch.step()
        assert (watch.since, watch.apart_since) == (1000.0, None)
        explorer.faults["/metrics"] = [503, 503]
        for now[0] in (4000.0, 5000.0):
            await watch.step()
            assert (watch.up, watch.since) == (False, 4000.0)
        client.close()
    await database.close()


async def test_a_version_that_is_served_again_counts_from_then(tmp_path: Path) -> None:
    """As after a roll back, or under a new job's name: what was delivered before is not for the Trainer to take now."""
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/store.db")
    await database.open()

    async def counted(version: int, now: float) -> tuple[int, int]:
        async with database.write() as session:
            await record_version(session, version, now)
        async with database.read() as session:
            recently = await health(session, version, recent=now, old=now)
            assert recently.served is not None
            return recently.untrained, recently.served.experiences_since

    async def deliver(now: float) -> None:
        async with database.write() as session:
            row = CommitRow(
                trigger="interval", groups=1, experiences=64, explorer_ready=0, explorer_total=0, explorer_step=0,
                started_at=1.0, state=CommitState.ASKED,
            )  # fmt: skip
            session.add(row)
            await session.flush()
            await end(session, row.id, CommitState.DELIVERED, now, experiences=64)

    assert await counted(3, 1000.0) == (0, 0)
    for ended_at, version in ((2000.0, 5), (4000.0, 6)):
        await deliver(ended_at)
        assert await counted(version, ended_at + 1000.0) == (0, 0)
    assert await counted(3, 6000.0) == (0, 0)
    await deliver(7000.0)
    assert await counted(3, 8000.0) == (64, 64), "the sidecar was restarted: it is still the same"
    await database.close()


async def test_the_sidecar_tells_its_time(run_loop: RunLoop) -> None:
    async with run_loop() as loop:
        assert (await loop.client.get("/status")).headers["date"].endswith("GMT")
