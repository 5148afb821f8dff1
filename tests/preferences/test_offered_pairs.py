"""Pairs are given out one to an annotator, blind, for a while, and judged once by each."""

from __future__ import annotations

import asyncio

import pytest
from preference_store import Compared
from stores import ON_BOTH_STORES, stored_rows

from slipstream.store.database import Database
from slipstream.store.preferences import PairKind, Result

LEASE = 600.0


@ON_BOTH_STORES
async def test_two_annotators_get_two_pairs_and_a_third_none(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    await compared.group("two")
    offers = await asyncio.gather(compared.next("ann"), compared.next("bob"), compared.next("cleo"))
    pairs = [offer.pair_id for offer in offers if offer is not None]
    assert len(pairs) == len(set(pairs)) == 2


@ON_BOTH_STORES
async def test_asking_again_gives_the_same_pair_until_it_is_judged(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    await compared.group("two")
    first = await compared.offered()
    compared.now += 60
    again = await compared.offered()
    assert (again.pair_id, again.swapped) == (first.pair_id, first.swapped)
    assert again.expires_at == compared.now + LEASE, "it is kept for her anew"
    assert (await compared.judge(first, "a")).result is Result.STORED
    assert (await compared.offered()).pair_id != first.pair_id


@ON_BOTH_STORES
async def test_a_pair_that_is_about_to_be_judged_is_left_out_and_given_again_if_it_is_not(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    await compared.group("two")
    first = await compared.offered()
    second = await compared.next(after=first.pair_id)
    assert second is not None
    assert second.pair_id != first.pair_id
    assert (await compared.offered()).pair_id == first.pair_id, "it was not judged"
    assert (await compared.judge(second, "a")).result is Result.STORED
    assert await compared.next(after=first.pair_id) is None
    assert (await compared.judge(first, "a")).result is Result.STORED


@ON_BOTH_STORES
async def test_a_pair_that_was_left_alone_goes_to_another_annotator(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    first = await compared.offered("ann")
    compared.now += LEASE - 1
    assert await compared.next("bob") is None
    compared.now += 1
    assert (await compared.offered("bob")).pair_id == first.pair_id
    assert (await compared.judge(first, "a", "ann")).result is Result.EXPIRED, "it is bob's now"
    assert (await compared.judge(first, "b", "bob")).result is Result.STORED
    assert await compared.next("ann") is None


@ON_BOTH_STORES
async def test_a_late_judgement_counts_while_nobody_else_has_the_pair(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    first = await compared.offered()
    compared.now += 10 * LEASE
    assert (await compared.judge(first, "a")).result is Result.STORED


@ON_BOTH_STORES
async def test_so_many_annotators_judge_a_pair_as_are_asked_for_and_each_once(database: Database) -> None:
    compared = Compared(database, judgements=2)
    await compared.group("one")
    pair = await compared.offered("ann")
    assert (await compared.offered("bob")).pair_id == pair.pair_id
    assert await compared.next("cleo") is None, "both places are taken"
    assert (await compared.judge(pair, "tie", "ann")).result is Result.STORED
    assert await compared.next("ann") is None, "she has judged it"
    assert (await compared.judge(pair, "both_bad", "bob")).result is Result.STORED
    assert await compared.next("cleo") is None


@ON_BOTH_STORES
async def test_the_same_judgement_again_changes_nothing_and_another_is_refused(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    pair = await compared.offered()
    results = [(await compared.judge(pair, choice)).result for choice in ("a", "a", "b")]
    assert results == [Result.STORED, Result.REPEATED, Result.CONTRADICTED]
    async with database.read() as session:
        rows = (await session.connection()).exec_driver_sql
        assert (await rows("SELECT judged FROM preference_pairs")).all() == [(1,)]
        assert (await rows("SELECT choice FROM preference_offers")).all() == [("a",)]


@ON_BOTH_STORES
async def test_a_pair_is_judged_by_those_to_whom_it_was_shown_and_by_their_tenant(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one", tenant="acme")
    pair = await compared.offered()
    assert (await compared.judge(pair, "a", "bob")).result is Result.NOT_OFFERED
    assert (await compared.judge("no-such-pair", "a")).result is Result.UNKNOWN
    assert (await compared.judge(pair, "a", tenant="beta")).result is Result.UNKNOWN
    assert (await compared.judge(pair, "a", tenant="acme")).result is Result.STORED


@ON_BOTH_STORES
async def test_an_annotator_of_a_tenant_sees_its_answers_alone(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one", tenant="acme")
    assert await compared.next(tenant="beta") is None
    assert await compared.next(tenant="acme") is not None


@ON_BOTH_STORES
async def test_a_skipped_pair_goes_to_another_annotator_and_is_not_shown_again(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one")
    pair = await compared.offered("ann")
    assert (await compared.judge(pair, "skip", "ann")).result is Result.STORED
    assert await compared.next("ann") is None
    assert (await compared.offered("bob")).pair_id == pair.pair_id


@ON_BOTH_STORES
async def test_pairs_with_production_come_before_pairs_of_runs(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one", runs=("x", "y"))
    await compared.group("two", runs=("x",))
    kinds = []
    while (offer := await compared.next()) is not None:
        kinds.append("production" if offer.left_run is None else "runs")
        assert offer.left_run != offer.right_run
        await compared.judge(offer, "tie")
    assert kinds == ["production", "production", "runs"], "one of each kind of a group"


@ON_BOTH_STORES
async def test_pairs_of_runs_alone_can_be_asked_for(database: Database) -> None:
    compared = Compared(database)
    await compared.group("one", runs=("x", "y"))
    assert (await compared.offered(kind=PairKind.RUNS)).left_run is not None


@ON_BOTH_STORES
async def test_nobody_is_asked_about_two_equal_answers(database: Database, store_url: str) -> None:
    compared = Compared(database)
    await compared.group("different", runs=("other",), production="one")
    for number in range(25):
        await compared.group(f"equal-{number}", runs=("same",), production="same")
    offer = await compared.offered()
    found = await stored_rows(store_url, "SELECT task_ref, identical FROM preference_pairs WHERE id = :id",
                              id=offer.pair_id)  # fmt: skip
    assert [(task, bool(same)) for task, same in found] == [("different", False)]
    [(equal,)] = await stored_rows(store_url, "SELECT count(*) FROM preference_pairs WHERE identical")
    assert equal == 25, "they are counted"


@pytest.mark.slow
async def test_the_order_and_the_run_are_drawn(database: Database) -> None:
    compared = Compared(database)
    seen, runs = set(), set()
    for number in range(60):
        await compared.group(f"t{number}", runs=("x", "y", "z"))
        offer = await compared.offered(kind=PairKind.PRODUCTION)
        await compared.judge(offer, "tie")
        seen.add(offer.swapped)
        runs.add((offer.right_run - 1) % 3)
    assert seen == {True, False}
    assert runs == {0, 1, 2}
