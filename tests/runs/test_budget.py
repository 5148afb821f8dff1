"""What runs may cost in an hour: over restarts, for several sidecars, and with replays counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loops import Loop, RunLoop
from prometheus_client import CollectorRegistry
from replaying import ask, finish, open_runs, sdk
from serving import until
from stores import ON_BOTH_STORES

from slipstream.metrics import Metrics
from slipstream.runs.budget import Budget, tokens_of
from slipstream.store.database import Database


class Hours:
    """A clock that a test sets."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def spends(budget: Budget, database: Database, wanted: int, clock: Hours) -> int:
    """Spend as many of the requests as there is room for, as a sidecar does that claims runs; returns how many."""
    async with database.write() as session:
        room = await budget.room(session, wanted, clock())
        await budget.spend(session, room, 0, clock())
    return room


@ON_BOTH_STORES
async def test_several_sidecars_share_what_is_left_of_the_hour(store_url: str) -> None:
    clock = Hours()
    databases = [Database(store_url)]
    await databases[0].open()
    if databases[0].shared:
        databases.append(Database(store_url))
        await databases[1].open()
    try:
        budgets = [
            Budget(database, Metrics(CollectorRegistry()), "runs", requests=10, clock=clock) for database in databases
        ]
        pairs = list(zip(budgets, databases, strict=True)) * (8 // len(databases))
        assert sum(await asyncio.gather(*(spends(*pair, 3, clock) for pair in pairs))) == 10
        await budgets[-1].step()
        assert (budgets[-1].spent.requests, budgets[-1].open) == (10, False)
        clock.now += 3500
        assert await spends(*pairs[0], 3, clock) == 0
        clock.now += 100
        assert await spends(*pairs[0], 3, clock) == 3
    finally:
        for database in databases:
            await database.close()


async def _chatted(loop: Loop, count: int) -> None:
    """So many runs are sent, and no further one."""
    await until(lambda: len(loop.explorer.chats) >= count)
    await asyncio.sleep(0.3)  # longer than a further one takes
    assert len(loop.explorer.chats) == count


@pytest.mark.slow
async def test_runs_beyond_the_budget_wait_over_a_restart(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 5, "budget": {"requests_per_hour": 3}}) as loop:
        await loop.chat("hello", {"x-slipstream-task-id": "t"})
        await _chatted(loop, 3)

        async def told() -> bool:
            return (await loop.status())["budget"]["runs"]["requests"] == {"spent_last_hour": 3, "limit": 3}

        await until(told)

        async def answered() -> str:
            text = (await loop.client.get("/metrics")).text
            return text if "slipstream_runs_waiting 2.0" in text else ""

        text = await until(answered)
        assert 'slipstream_budget_spent{kind="requests",purpose="runs"} 3.0' in text
        assert 'slipstream_budget{kind="requests",purpose="runs"} 3.0' in text
        unlimited = (await loop.status())["budget"]
        assert unlimited["runs"]["tokens"]["limit"] is None
        assert 'slipstream_budget{kind="tokens"' not in text
        assert 'slipstream_budget_spent{kind="tokens",purpose="runs"}' in text, "counted with the requests"
        assert unlimited["judge"]["requests"] == {"spent_last_hour": None, "limit": None}
        assert 'purpose="judge"' not in text, "nothing is counted for it, so nothing is told"
    async with run_loop(runs={"repeat_time": 5, "budget": {"requests_per_hour": 4}}) as loop:
        await _chatted(loop, 1)
    async with run_loop(runs={"repeat_time": 5}) as loop:
        await _chatted(loop, 1)


async def test_tokens_of_answers_count_with_their_prompts(run_loop: RunLoop) -> None:
    async with run_loop(runs={"repeat_time": 4, "concurrency": 1, "budget": {"tokens_per_hour": 10}}) as loop:
        await loop.chat("hello")
        await _chatted(loop, 2)  # of 5 tokens each
        await until(lambda: _spent(loop, "tokens", 10))


async def _spent(loop: Loop, kind: str, count: int) -> bool:
    return bool((await loop.status())["budget"]["runs"][kind]["spent_last_hour"] == count)


@pytest.mark.slow
async def test_calls_of_replays_count_and_what_has_begun_goes_on(run_loop: RunLoop) -> None:
    async with run_loop(runs={"budget": {"requests_per_hour": 2}}) as loop:
        group = await open_runs(loop)
        async with sdk(loop, group["runs"][0]) as client:
            for _ in range(3):
                await ask(client)
        await until(lambda: _spent(loop, "requests", 3))
        refused = await loop.client.post("/runs/other", json={"runs": 1})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "budget_spent")
        assert refused.headers["retry-after"] == "60"
        assert (await finish(loop, reward=1))["state"] == "scored"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [({"total_tokens": 7}, 7), ({}, 0), (None, 0), ({"total_tokens": "7"}, 0), ({"total_tokens": -1}, 0)],
    ids=["said", "empty", "none", "text", "negative"],
)
def test_usage_that_is_no_count_counts_nothing(usage: Any, tokens: int) -> None:
    assert tokens_of({"usage": usage}) == tokens


async def test_more_open_runs_than_there_may_be_are_refused_until_some_end(run_loop: RunLoop) -> None:
    async with run_loop(runs={"open": 3}) as loop:
        await open_runs(loop, "t", runs=2)
        refused = await loop.client.post("/runs/other", json={"runs": 2})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_open")
        assert "slipstream_replays_open 2.0" in (await loop.client.get("/metrics")).text
        await finish(loop, reward=1)
        await open_runs(loop, "other", runs=2)
