"""Sidecars that share a store know of each other by their leases, and take over from the dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from stores import deaf

from slipstream.cluster.membership import Membership
from slipstream.cluster.registration import Registration
from slipstream.store import captured, sidecars
from slipstream.store.captured import CaptureBatch
from slipstream.store.database import Database
from slipstream.store.sidecars import LeaseLost, TakenOver

LEASE = 3600.0


class Member:
    """One of them, by a clock that the test sets."""

    def __init__(self, database: Database, before: Registration | None = None) -> None:
        self.database = database
        self.before = before or Registration()
        self.now = 0.0
        self.ids: list[int] = []
        self.taken: list[TakenOver | None] = []
        self.away = False
        self.membership = Membership(
            database, name="test", lease=LEASE, clock=lambda: 1.0, monotonic=lambda: self.now,
            before=self.before, registered=self._registered, took_over=self.taken.append,
        )  # fmt: skip

    async def _registered(self, sidecar: int) -> None:
        if self.away:
            raise ConnectionError("the store is away")
        self.ids.append(sidecar)

    async def step(self) -> None:
        await self.membership.renew()
        await self.membership.take_over()

    async def live(self, seconds: float) -> None:
        """Go on for so long."""
        for _ in range(4):
            self.now += seconds / 4
            await self.step()

    def took_over(self, dead: Member) -> TakenOver | None:
        """What of this one; None where nothing was."""
        return next((taken for taken in self.taken if taken is not None and taken.sidecars == dead.ids), None)

    async def capture(self, number: int) -> None:
        parcel = CaptureBatch(captured.before_first(self.membership.id) + number, 3, b"packed")
        async with self.database.write(alone=False) as session:
            await sidecars.hold(session, self.membership.id)
            await captured.add(session, self.membership.id, [parcel], again=False)

    async def run_out(self) -> None:
        """As if nothing had been heard of it for longer than its lease."""
        async with self.database.write() as session:
            await session.execute(text("UPDATE sidecars SET lease_until = 1.0 WHERE id = :id"), {"id": self.ids[-1]})


@pytest.fixture
async def two(new_postgres: Callable[[], str]) -> AsyncIterator[tuple[Member, Member]]:
    url = new_postgres()
    members = Member(Database(url)), Member(Database(url))
    for member in members:
        await member.database.open()
        await member.membership.start()
    yield members
    for member in members:
        await member.database.close()


async def test_what_a_dead_sidecar_had_captured_is_read_by_the_other_in_its_order(two: tuple[Member, Member]) -> None:
    dead, other = two
    for number in (1, 2):
        await dead.capture(number)
    await other.capture(1)
    await dead.run_out()
    await other.live(LEASE)
    taken = other.took_over(dead)
    assert taken is not None
    assert taken.exchanges == 6
    first, second = captured.before_first(dead.ids[0]), captured.before_first(other.ids[0])
    async with other.database.write() as session:
        parcels = await captured.begin(session, other.membership.id, 100, 10**6, up_to=second + 1)
        assert (await captured.waiting(session, other.membership.id)).exchanges == 9
    assert [parcel.id for parcel in parcels] == [first + 1, first + 2, second + 1]


async def test_a_sidecar_that_goes_on_after_its_lease_writes_nothing_under_it(two: tuple[Member, Member]) -> None:
    stopped, other = two
    await stopped.run_out()
    await other.live(LEASE)
    with pytest.raises(LeaseLost):
        await stopped.capture(1)
    await stopped.step()
    assert len(stopped.ids) == 2
    await stopped.capture(1)


async def test_nobody_is_taken_over_by_one_that_could_not_renew_its_own_lease(two: tuple[Member, Member]) -> None:
    """The store was away: all leases have run out, and all are alive."""
    slow, quick = two
    await slow.run_out()
    await quick.live(LEASE - 1)
    assert not quick.took_over(slow)
    await slow.step()
    assert len(slow.ids) == 1
    await quick.live(LEASE)
    assert not quick.took_over(slow)


async def test_one_that_has_ended_is_taken_over_at_once(two: tuple[Member, Member]) -> None:
    ended, other = two
    await ended.capture(1)
    await ended.membership.stop()
    await other.step()
    taken = other.took_over(ended)
    assert taken is not None
    assert taken.exchanges == 3


@pytest.mark.slow
async def test_some_parcels_that_are_another_s_by_now_are_not_stored_with_the_rest(two: tuple[Member, Member]) -> None:
    one, _ = two
    await one.capture(1)
    first = captured.before_first(one.membership.id)
    both = [CaptureBatch(first + number, 3, b"packed") for number in (1, 2)]
    with pytest.raises(LeaseLost):
        async with one.database.write() as session:
            await captured.drop(session, one.membership.id, both)
    async with one.database.read() as session:
        assert (await captured.waiting(session, one.membership.id)).exchanges == 3


@pytest.mark.slow
async def test_what_a_sidecar_writes_while_it_reads_what_it_took_over_is_left_to_be_read(
    two: tuple[Member, Member],
) -> None:
    """The other one registered later, so that its parcels come after all of this one's."""
    reader, dead = two
    await reader.capture(1)
    await dead.capture(1)
    await dead.membership.stop()
    await reader.step()
    first = captured.before_first(reader.membership.id)
    async with reader.database.write() as session:
        parcels = await captured.begin(session, reader.membership.id, 100, 10**6, up_to=first + 1)
    await reader.capture(2)
    async with reader.database.write() as session:
        assert await captured.drop(session, reader.membership.id, parcels)
    async with reader.database.read() as session:
        assert (await captured.waiting(session, reader.membership.id)).exchanges == 3


@pytest.mark.slow
async def test_a_registration_that_was_told_to_nobody_is_made_again(two: tuple[Member, Member]) -> None:
    stopped, other = two
    await stopped.run_out()
    await other.live(LEASE)
    stopped.away = True
    await stopped.step()
    stopped.away = False
    await stopped.step()
    assert stopped.ids[1:] == [stopped.membership.id]
    await stopped.capture(1)


@pytest.mark.slow
async def test_nobody_is_taken_over_by_one_whose_own_lease_ran_out_while_the_store_was_slow(
    two: tuple[Member, Member],
) -> None:
    """Its renewal took longer than a lease, and came to its end all the same; so will those of the others."""
    slow, quick = two
    await slow.run_out()
    quick.now += 2 * LEASE
    await quick.step()
    assert not quick.took_over(slow)
    await quick.live(LEASE)
    assert quick.took_over(slow)


@pytest.mark.slow
async def test_a_lease_is_renewed_while_a_takeover_waits_for_its_turn(two: tuple[Member, Member]) -> None:
    dead, other = two
    await dead.capture(1)
    await other.live(LEASE)
    await dead.run_out()
    async with other.database.write():  # the sidecar's own writers are busy
        waiting = asyncio.create_task(other.membership.take_over())
        await asyncio.sleep(0)
        other.now += LEASE / 2
        async with asyncio.timeout(30):
            await other.membership.renew()
        assert other.membership.left == LEASE
        assert not waiting.done()
    await waiting
    assert other.took_over(dead)


@pytest.mark.slow
async def test_a_takeover_that_nobody_heard_of_is_told_as_one_that_may_be(two: tuple[Member, Member]) -> None:
    dead, other = two
    await dead.capture(1)
    await other.live(LEASE)
    await dead.run_out()
    with deaf(other.database), pytest.raises(OperationalError):
        await other.membership.take_over()
    assert other.taken[-1] is None
    async with other.database.read() as session:
        assert (await captured.waiting(session, other.membership.id)).exchanges == 3


async def test_one_whose_process_was_started_again_by_its_parent_is_taken_over_at_once(
    two: tuple[Member, Member],
) -> None:
    dead, _ = two
    await dead.capture(1)
    next_life = Member(dead.database, before=dead.before)
    await next_life.membership.start()
    taken = next_life.took_over(dead)
    assert taken is not None
    assert taken.exchanges == 3
