"""The share in the store, and outcomes by unit."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from stores import ON_BOTH_STORES

from slipstream.serving.served import Arm, Served
from slipstream.store import audit, rewind, rollout_units, serving, units
from slipstream.store.audit import Wanted
from slipstream.store.database import Database
from slipstream.store.tables.serving import UnitRow
from slipstream.store.units import Outcome


@ON_BOTH_STORES
async def test_each_change_has_an_epoch_and_all_have_one_salt(database: Database) -> None:
    async with database.read() as session:
        assert await serving.current(session) == serving.Serving()
    changes: list[serving.Serving] = []
    for number in range(4):
        async with database.write() as session:
            if number == 1:
                changes.append(await serving.kill(session, 2.0))
            elif number == 2:
                changes.append(await serving.revive(session, 3.0))
            else:
                changes.append(await serving.serve(session, 8, 0.25, 12, 1.0 + number, "http://lane/v1"))
    assert [each.epoch for each in changes] == [1, 2, 3, 4]
    assert [each.killed for each in changes] == [False, True, False, False]
    assert {each.salt for each in changes} == {changes[0].salt} != {0}
    assert {(each.version, each.share, each.lane_step, each.lane) for each in changes} == {
        (8, 0.25, 12, "http://lane/v1")
    }
    async with database.read() as session:
        assert await serving.current(session) == changes[-1]
    await database.close()


@ON_BOTH_STORES
async def test_a_restored_store_serves_nobody(database: Database) -> None:
    """The backup may be older than a kill, and than what the lane serves."""
    async with database.write() as session:
        await rewind.settle(session, 1, 1.0)
        assert await serving.current(session) == serving.Serving(), "there was no share"
        before = await serving.serve(session, 8, 0.25, None, 1.0)
    async with database.write() as session:
        await rewind.settle(session, 1, 2.0)
    async with database.read() as session:
        now = await serving.current(session)
        entries, _ = await audit.page(session, Wanted(), 10)
    assert (now.version, now.share, now.epoch, now.salt) == (None, 0.0, before.epoch + 1, before.salt)
    assert [(entry["action"], entry["key"]) for entry in entries] == [("serving_share", None)]
    await database.close()


@pytest.mark.parametrize(("version", "share"), [(8, 1.5), (8, -0.1), (None, 0.5), (-1, 0.5)])
async def test_a_share_of_nothing_is_refused(database: Database, version: int | None, share: float) -> None:
    async with database.write() as session:
        with pytest.raises(ValueError, match="a share from 0 to 1"):
            await serving.serve(session, version, share, None, 1.0)


def outcome(unit: int, at: float, arm: Arm = "control", version: int = 8, **about: Any) -> Outcome:
    return Outcome(at, Served("production", arm=arm, unit=unit, version=version, **{"epoch": 1, **about}))


async def rows(database: Database) -> list[tuple[Any, ...]]:
    columns = UnitRow.version, UnitRow.unit, UnitRow.arm, UnitRow.first_at, UnitRow.last_at, UnitRow.moved_at
    counts = UnitRow.calls, UnitRow.failures, UnitRow.fallbacks, UnitRow.slowest
    async with database.read() as session:
        return [tuple(row) for row in await session.execute(select(*columns, *counts).order_by(UnitRow.id))]


@ON_BOTH_STORES
async def test_outcomes_are_added_up_by_unit_and_version(database: Database) -> None:
    first = [
        outcome(2**64 - 1, 1.0, waited=0.5),
        outcome(5, 2.0, "treatment", failed=True, fell_back=True, waited=3.0),
        outcome(2**64 - 1, 3.0, waited=0.25),
    ]
    second = [outcome(5, 4.0, "treatment", waited=1.0), outcome(5, 5.0, version=9), outcome(7, 6.0)]
    for some in (first, second, []):
        async with database.write() as session:
            await units.add(session, some)
    assert await rows(database) == [
        (8, "f" * 16, "control", 1.0, 3.0, None, 2, 0, 0, 0.5),
        (8, f"{5:016x}", "treatment", 2.0, 4.0, None, 2, 1, 1, 3.0),
        (9, f"{5:016x}", "control", 5.0, 5.0, None, 1, 0, 0, 0.0),
        (8, f"{7:016x}", "control", 6.0, 6.0, None, 1, 0, 0, 0.0),
    ]
    async with database.read() as session:
        assert await units.counts(session, 8) == {
            "control": {"units": 2, "calls": 3, "failures": 0, "fallbacks": 0},
            "treatment": {"units": 1, "calls": 2, "failures": 1, "fallbacks": 1},
        }
        assert await units.counts(session, 10) == {
            arm: {"units": 0, "calls": 0, "failures": 0, "fallbacks": 0} for arm in ("control", "treatment")
        }
    async with database.write() as session:
        assert await units.delete_older(session, 4.0, 10) == 1
    assert len(await rows(database)) == 3
    await database.close()


async def test_a_unit_that_the_rate_leaves_out_is_known_by_it(database: Database) -> None:
    async with database.write() as session:
        await units.add(session, [outcome(5, 1.0), outcome(6, 1.0, alone=True)])
    async with database.read() as session:
        found = await rollout_units.uncounted(session, rollout_units.OF_ROLLOUTS, 1, 8, 0.0, 9.0, 10)
    assert [(each.unit, each.sampled) for each in found] == [(f"{5:016x}", True), (f"{6:016x}", False)]


async def test_a_unit_begins_with_the_call_that_began_first_although_another_ended_before_it(
    database: Database,
) -> None:
    for some in ([outcome(5, 3.0), outcome(5, 2.5)], [outcome(5, 2.0)], [outcome(5, 1.0, epoch=2)]):
        async with database.write() as session:
            await units.add(session, some)
    assert [row[3:5] for row in await rows(database)] == [(2.0, 3.0)], "a call of another comparison does not count"


async def test_calls_after_a_unit_changed_its_arm_are_not_counted(database: Database) -> None:
    for some in (
        [outcome(5, 1.0), outcome(5, 2.0, "treatment", failed=True)],
        [outcome(5, 3.0, "treatment", failed=True), outcome(5, 4.0)],
    ):
        async with database.write() as session:
            await units.add(session, some)
    assert await rows(database) == [(8, f"{5:016x}", "control", 1.0, 4.0, 2.0, 2, 0, 0, 0.0)]
