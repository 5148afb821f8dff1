"""How many requests a key has a minute: for the whole sidecar, and counted by its name."""

from __future__ import annotations

import pytest
from guarded import RunGuarded

from slipstream.access.keys import as_hash, new_key
from slipstream.access.ledger import NOBODY, Book, Ledger


async def test_beyond_its_requests_a_key_waits_for_the_next_minute(run_guarded: RunGuarded) -> None:
    key = new_key()
    entry = {"name": "slow", "roles": ["proxy"], "hash": as_hash(key), "requests_per_minute": 3}
    admin = new_key()
    operator = {"name": "operator", "roles": ["admin"], "hash": as_hash(admin)}
    async with run_guarded(access={"keys": [entry, operator]}) as guarded:
        client = guarded.loop.client
        answers = [await client.get("/v1/models", headers={"x-slipstream-key": key}) for _ in range(8)]
        limited = [answer for answer in answers if answer.status_code == 429]
        assert 2 <= len(limited) <= 5, "the clock's minute may have changed between them"
        assert len(guarded.production.heads) == 8 - len(limited), "production hears nothing of what is too much"
        assert 1 <= int(limited[0].headers["retry-after"]) <= 60
        assert limited[0].json()["error"]["code"] == "slipstream_rate_limit"
        await client.get("/status", headers={"x-slipstream-key": key})
        await client.get("/status")
        told = (await client.get("/metrics", headers={"x-slipstream-key": admin})).text
        assert f'slipstream_key_requests_total{{key="slow",outcome="limited"}} {len(limited)}.0' in told
        assert f'slipstream_key_requests_total{{key="slow",outcome="admitted"}} {8 - len(limited)}.0' in told
        assert 'slipstream_key_requests_total{key="slow",outcome="forbidden"} 1.0' in told
        assert 'slipstream_key_requests_total{key="(none)",outcome="unauthorized"} 1.0' in told


def test_a_limit_holds_over_the_workers_and_anew_each_minute() -> None:
    now = [30.0]
    ledger = Ledger(3)
    books = [Book(ledger, worker, lambda: now[0]) for worker in range(3)]
    assert [books[number % 3].within("a", 4) for number in range(6)] == [None, None, None, None, 30.0, 30.0]
    assert books[2].within("b", 1) is None, "each name has its own"
    now[0] = 61.0
    assert books[0].within("a", 1) is None
    assert books[1].within("a", 1) == 59.0


def test_a_worker_that_starts_again_goes_on_where_the_last_one_was() -> None:
    ledger = Ledger(1)
    first = Book(ledger, 0, lambda: 0.0)
    first.counts("a", "admitted")
    first.counts(NOBODY, "unauthorized")
    assert first.within("a", 1) is None
    second = Book(ledger, 0, lambda: 0.0)
    assert second.within("a", 1) is not None
    second.counts("a", "admitted")
    assert ledger.use()["a"].requests["admitted"] == 2
    assert set(ledger.use()) == {"a", NOBODY}


@pytest.mark.slow
def test_more_names_than_there_are_places_for_share_the_last_one() -> None:
    ledger = Ledger(1)
    book = Book(ledger, 0)
    for number in range(1200):
        book.counts(f"key-{number}", "admitted")
    assert ledger.use()["key-7"].requests["admitted"] == 1
    assert ledger.use()["key-1199"].requests["admitted"] > 1
