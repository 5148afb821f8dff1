"""Tokens of each day: counted by kind and tenant, priced, and shown to whom they belong."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from serving import until
from shared_by_tenants import RunShared
from stores import ON_BOTH_STORES

from slipstream.metrics import Metrics
from slipstream.settings.costs import Costs
from slipstream.stages.token_days import TokenDays
from slipstream.store import token_days
from slipstream.store.database import Database
from slipstream.usage import OF_ALL, Kind, Tokens, tokens_of

DAY = 86400.0


@ON_BOTH_STORES
async def test_tokens_are_added_up_by_day_kind_and_tenant(store_url: str, database: Database) -> None:
    now, tally = [100 * DAY + 5], Metrics(CollectorRegistry()).tokens
    stage = TokenDays(database, tally, clock=lambda: now[0])
    answer = {"usage": {"prompt_tokens": 10, "completion_tokens": 3}}
    tally.used(Kind.SHADOW, "acme", answer)
    tally.used(Kind.SHADOW, "acme", {"usage": {"input_tokens": 5, "output_tokens": 1}})
    tally.used(Kind.SHADOW, "beta", answer)
    tally.used(Kind.EVALUATION, OF_ALL, answer)
    await stage.step()
    tally.used(Kind.SHADOW, "acme", answer)
    await stage.step()
    await stage.step()

    async def seen(first: int, tenant: str | None = None) -> Any:
        async with database.read() as session:
            return await token_days.since(session, first, tenant)

    shadow, both = Tokens(3, 25, 7), {Kind.SHADOW: Tokens(4, 35, 10), Kind.EVALUATION: Tokens(1, 10, 3)}
    assert await seen(100, "acme") == {100: {Kind.SHADOW: shadow}}
    assert await seen(100) == {100: both}
    assert await seen(101) == {}
    now[0] += 89 * DAY
    tally.used(Kind.JUDGE, "acme", answer)
    await stage.step()
    assert set(await seen(0)) == {100, 189}
    now[0] += DAY
    tally.used(Kind.JUDGE, "acme", answer)
    await stage.step()
    assert set(await seen(0)) == {189, 190}, "ninety days are kept"


async def test_what_cannot_be_stored_stays_counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Metrics(CollectorRegistry()).tokens
    tally.used(Kind.LIVE, "acme", {"usage": {"prompt_tokens": 10, "completion_tokens": 3}})

    async def fails(*given: Any) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(token_days, "add", fails)
    with pytest.raises(OSError, match="away"):
        await TokenDays(database, tally, clock=lambda: 0.0).step()
    assert tally.take() == {(Kind.LIVE, "acme"): Tokens(1, 10, 3)}


async def test_who_asks_while_another_step_stores_finds_what_that_one_has_taken(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Metrics(CollectorRegistry()).tokens
    stage = TokenDays(database, tally, clock=lambda: 0.0)
    tally.used(Kind.LIVE, "acme", {"usage": {"prompt_tokens": 10, "completion_tokens": 3}})
    begun, goes_on, add = asyncio.Event(), asyncio.Event(), token_days.add

    async def slow(*given: Any) -> None:
        begun.set()
        await goes_on.wait()
        await add(*given)

    monkeypatch.setattr(token_days, "add", slow)
    storing = asyncio.create_task(stage.step())
    await begun.wait()
    asked = asyncio.create_task(stage.step())
    done, _ = await asyncio.wait([asked], timeout=0.05)
    assert not done, "it has nothing of its own to store, and waits for what is being stored"
    goes_on.set()
    await asked
    async with database.read() as session:
        assert await token_days.since(session, 0) == {0: {Kind.LIVE: Tokens(1, 10, 3)}}
    await storing


@pytest.mark.parametrize(
    "usage", [None, [], {}, {"prompt_tokens": -1}, {"prompt_tokens": True}, {"prompt_tokens": 1e9}]
)
def test_an_answer_that_says_nothing_has_no_tokens(usage: Any) -> None:
    assert tokens_of({"usage": usage}) == Tokens(1, 0, 0)
    assert tokens_of(usage) == Tokens(1, 0, 0)


def test_a_kind_without_a_price_has_no_cost() -> None:
    costs = Costs.model_validate({"per_million_tokens": {"judge": {"input": 2, "output": 4.0}}})
    assert costs.of({Kind.JUDGE: Tokens(1, 500_000, 250_000)}) == 2.0
    assert costs.of({}) == 0
    assert costs.of({Kind.JUDGE: Tokens(1, 1, 1), Kind.LIVE: Tokens(1, 1, 1)}) is None


async def test_each_tenant_is_shown_its_own_tokens(run_shared: RunShared) -> None:
    price = {"shadow": {"input": 1_000_000, "output": 0}}
    async with run_shared(costs={"currency": "EUR", "per_million_tokens": price}) as shared:
        await shared.chat("agent-a")

        async def counted() -> Any:
            found = (await shared.ask("admin", "GET", "/costs?days=1")).json()
            return found if found["days"] else None

        found = await until(counted)
        (day,) = found["days"]
        assert found["currency"] == "EUR"
        assert day["kinds"]["shadow"]["answers"] == day["answers"] == 1
        assert day["cost"] == day["input"] == day["kinds"]["shadow"]["input"]
        of_tenant = (await shared.ask("admin-a", "GET", "/costs")).json()
        assert json.dumps(of_tenant["days"]) == json.dumps(found["days"])
        for other in ("admin-b", "metrics"):
            assert (await shared.ask(other, "GET", "/costs")).json()["days"] == []
        today = (await shared.ask("admin", "GET", "/status")).json()["today"]
        assert (today["answers"], today["currency"]) == (1, "EUR")
        refused = await shared.ask("admin", "GET", "/costs?days=91")
        assert refused.json()["error"]["param"] == "days"
