"""What the sidecar sees of itself: `problems` of /status and the gauge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engines import ExplorerWithEngines
from loops import RunLoop
from planted import Plant
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from serving import serving, until

from slipstream.doctor import live
from slipstream.doctor.live import RECENT, STALE, Moment, problems
from slipstream.explorer.client import ExplorerClient
from slipstream.metrics import Metrics
from slipstream.store.commits import end, record_version
from slipstream.store.database import Database
from slipstream.store.lately import Lately, Served, lately
from slipstream.store.tables.commits import CommitRow
from slipstream.watch import ExplorerWatch

NOW = 1_800_000_000.0
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
        lately=Lately(
            served=Served(version=3, seen_at=NOW - 60, last_commit=7, experiences_since=32),
            delivered=320,
            last_delivery=NOW - 90,
            untrained=0,
            commits_lost=0,
            groups_dropped=0,
            facade_lost=0,
            facade_reason=None,
            runs_pending=4,
            passed_over={},
            unscored=0,
            failure=None,
        ),
    )


def store(fine: Moment, **changes: Any) -> Moment:
    return replace(fine, lately=replace(fine.lately, **changes))


def test_when_everything_goes_well(fine: Moment) -> None:
    assert problems(fine) == []
    assert problems(store(fine, served=None, delivered=0)) == [], "before the first version was seen"


def test_an_explorer_away_is_told_after_a_minute(fine: Moment) -> None:
    away = replace(fine, explorer_up=False, explorer_error="GET /metrics: ConnectError", explorer_since=NOW - 30)
    assert problems(away) == []
    [found] = problems(replace(away, explorer_since=NOW - 720, breaker="open"))
    assert (found.code, found.severity) == ("live.explorer_away", "error")
    assert found.found == "away for 12 min: GET /metrics: ConnectError"


def test_a_breaker_that_is_open_though_the_explorer_answers(fine: Moment) -> None:
    assert [found.code for found in problems(replace(fine, breaker="half_open"))] == ["live.breaker_open"]


def test_an_endpoint_of_replays_that_is_away(fine: Moment) -> None:
    [found] = problems(replace(fine, webhook="open", webhook_error="ConnectError: refused"))
    assert (found.code, found.where) == ("live.webhook_away", "runs.webhook.url")
    assert found.found == "the circuit breaker is open; the last try: ConnectError: refused"


def test_engines_have_time_to_meet(fine: Moment) -> None:
    apart = replace(fine, versions=(2, 3), apart_since=NOW - 60)
    assert problems(apart) == []
    [found] = problems(replace(apart, apart_since=NOW - 2 * STALE))
    assert (found.code, found.found) == ("live.engines_apart", "versions 2 and 3 for 30 min")


def test_a_trainer_that_does_not_consume(fine: Moment) -> None:
    served = Served(version=3, seen_at=NOW - 2 * DAY, last_commit=7, experiences_since=64)
    stuck = store(fine, served=served, last_delivery=NOW - STALE, untrained=32)
    [found] = problems(stuck)
    assert (found.code, found.severity) == ("live.trainer_does_not_consume", "error")
    assert "64 experiences were delivered since version 3 appeared 48 h ago, 32 of them more than 15 min" in found.found
    assert found.found.endswith("; a batch is 32")
    assert problems(store(stuck, served=replace(served, experiences_since=63))) == [], "less than two batches"
    assert problems(store(stuck, served=replace(served, seen_at=NOW - 60))) == [], "it came a minute ago"
    assert problems(store(stuck, untrained=0)) == [], "they were delivered just now"


def test_without_a_batch_size_a_large_one_is_assumed(fine: Moment, plant: Plant) -> None:
    served = Served(version=3, seen_at=NOW - DAY, last_commit=7, experiences_since=600)
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
    assert problems(store(fine, passed_over={"labels": 3, "undecided": 99})) == []


def test_a_low_rate_of_sampling_is_no_problem(fine: Moment) -> None:
    assert problems(store(fine, passed_over={"not_sampled": 200})) == []


def test_nothing_is_scored_and_the_reason_is_told(fine: Moment) -> None:
    [found] = problems(store(fine, unscored=10, failure="no reference"))
    assert (found.code, found.found) == (
        "live.nothing_scored",
        "none of 10 runs; the newest failed because: no reference",
    )
    assert problems(store(fine, unscored=9, failure="no reference")) == []


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

        [problem] = await until(told)
        assert (problem["code"], problem["found"]) == (
            "live.nothing_selected",
            "none of 20 tasks; the commonest reason is no_mark (20)",
        )
        await loop.chat("question 20", {"x-slipstream-mark": "good"})
        await until(lambda: loop.ready(1))
        assert await told() == []


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
        client = ExplorerClient(url, model=None, chat_timeout=5, connect_timeout=5)
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
            recently = await lately(session, version, recent=now, old=now)
            assert recently.served is not None
            return recently.untrained, recently.served.experiences_since

    async def deliver(now: float) -> None:
        async with database.write() as session:
            row = CommitRow(
                trigger="interval", groups=1, experiences=64, explorer_ready=0, explorer_total=0, explorer_step=0,
                started_at=1.0,
            )  # fmt: skip
            session.add(row)
            await session.flush()
            await end(session, row.id, "delivered", now, experiences=64)

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
