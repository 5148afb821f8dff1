"""Decisions about rollouts in the store: one transaction each, made once, and never changed."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from stores import ON_BOTH_STORES, stored_rows

from slipstream.store import audit, rollouts, serving, sidecars, version_views, versions
from slipstream.store.audit import Author, Wanted
from slipstream.store.database import Database
from slipstream.store.rollouts import DECIDER, Change, Rollout, Verdict
from slipstream.store.states import ImpossibleTransition, RolloutState
from slipstream.store.versions import Found

pytestmark = ON_BOTH_STORES

NOW = 1_000_000.0
BY = Author("operator", None)


async def opened(database: Database) -> Rollout:
    async with database.write() as session:
        return await rollouts.open_(session, 8, {"steps": [0.05, 0.5]}, 0.01, BY, NOW)


def begun(**evidence: int) -> Change:
    return Change(Verdict.BEGIN, RolloutState.RUNNING, 0, 0.05, "it begins", evidence, lane_step=3)


async def carried_out(database: Database, rollout: Rollout, change: Change, by: Author = DECIDER) -> Rollout | None:
    async with database.write() as session:
        return await rollouts.carry_out(session, rollout, change, by, NOW + 1)


async def noted(database: Database) -> list[tuple[str, str | None]]:
    async with database.read() as session:
        entries, _ = await audit.page(session, Wanted(), 100)
    return [(entry["action"], entry["key"]) for entry in reversed(entries)]


async def test_a_decision_changes_the_rollout_what_is_served_and_the_audit_together(database: Database) -> None:
    rollout = await opened(database)
    assert (rollout.state, rollout.share, rollout.position, rollout.promotions) == (RolloutState.PENDING, 0.0, 1, 0)
    after = await carried_out(database, rollout, begun(units=0))
    assert after is not None
    assert (after.state, after.share, after.lane_step, after.begun_at) == (RolloutState.RUNNING, 0.05, 3, NOW + 1)
    async with database.read() as session:
        served = await serving.current(session)
        [first, second] = await rollouts.decisions(session, rollout.id)
    assert (served.version, served.share, served.lane_step) == (8, 0.05, 3)
    assert (first["action"], first["key"]) == ("open", "operator")
    assert (second["action"], second["key"], second["evidence"]) == ("begin", "(decider)", {"units": 0})
    assert await noted(database) == [("rollout_open", "operator"), ("rollout_begin", "(decider)")]


async def test_a_decision_on_an_older_picture_is_not_carried_out(database: Database) -> None:
    rollout = await opened(database)
    assert await carried_out(database, rollout, begun()) is not None
    assert await carried_out(database, rollout, begun()) is None
    assert len(await noted(database)) == 2


async def test_a_rollback_sends_all_users_to_production_and_ends_the_rollout(database: Database) -> None:
    rollout = await carried_out(database, await opened(database), begun())
    assert rollout is not None
    back = Change(Verdict.ROLL_BACK, RolloutState.ROLLED_BACK, 0, 0.0, "harm", {})
    after = await carried_out(database, rollout, back)
    assert after is not None
    assert after.ended_at == NOW + 1
    async with database.read() as session:
        served = await serving.current(session)
        assert (served.version, served.share) == (None, 0.0)
        assert await rollouts.current(session) is None
    again = Change(Verdict.ADVANCE, RolloutState.RUNNING, 1, 0.5, "", {})
    assert await carried_out(database, after, again) is None


async def test_a_change_that_there_is_not_is_refused_with_all_of_its_transaction(database: Database) -> None:
    rollout = await opened(database)
    with pytest.raises(ImpossibleTransition):
        await carried_out(database, rollout, Change(Verdict.PAUSE, RolloutState.PAUSED, 0, 0.0, "", {}))
    assert len(await noted(database)) == 1


@pytest.mark.parametrize("statement", ["UPDATE rollout_decisions SET reason = 'x'", "DELETE FROM rollout_decisions"])
async def test_the_database_refuses_to_change_a_decision(database: Database, statement: str) -> None:
    await opened(database)
    with pytest.raises(DBAPIError, match="rollout_decisions only grows"):
        async with database.write() as session:
            await session.execute(text(statement))


async def test_promotions_by_the_test_alone_are_promotions_of_the_stream(database: Database) -> None:
    for proven in (False, True):
        rollout = await carried_out(database, await opened(database), begun())
        assert rollout is not None
        promoted = Change(Verdict.PROMOTE, RolloutState.PROMOTED, 0, 0.95, "", {}, proven=proven)
        rollout = await carried_out(database, rollout, promoted)
        assert rollout is not None
        assert await carried_out(database, rollout, Change(Verdict.REPLACE, rollout.state, 0, 0.0, "", {})) is not None
    async with database.read() as session:
        assert await rollouts.stream(session) == (2, 1)
    last = await opened(database)
    assert (last.position, last.promotions) == (3, 1)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ((), "candidate"),
        ((Change(Verdict.ROLL_BACK, RolloutState.ROLLED_BACK, 0, 0.0, "", {}),), "rejected"),
        ((Change(Verdict.ABORT, RolloutState.ABORTED, 0, 0.0, "", {}),), "kept"),
        ((Change(Verdict.PROMOTE, RolloutState.PROMOTED, 0, 0.95, "", {}),), "live"),
        (
            (
                Change(Verdict.PROMOTE, RolloutState.PROMOTED, 0, 0.95, "", {}),
                Change(Verdict.REPLACE, RolloutState.PROMOTED, 0, 0.0, "", {}),
            ),
            "retired",
        ),
        (
            (
                Change(Verdict.PROMOTE, RolloutState.PROMOTED, 0, 0.95, "", {}),
                Change(Verdict.ABORT, RolloutState.ABORTED, 0, 0.0, "", {}),
            ),
            "retired",
        ),
    ],
    ids=["begun", "rolled back", "aborted", "promoted", "replaced", "aborted when live"],
)
async def test_the_state_of_the_version_follows_the_decision_and_the_version_can_be_tried_again(
    database: Database, changes: tuple[Change, ...], state: str
) -> None:
    async with database.write() as session:
        await versions.record_found(session, Found(8, "/job/global_step_8", 1.0, None), NOW)
        await versions.keep(session, 8, "/kept/8", "hand", NOW)
    rollout = await carried_out(database, await opened(database), begun())
    for change in changes:
        assert rollout is not None
        rollout = await carried_out(database, rollout, change)
    assert rollout is not None
    assert await _state(database) == state
    if rollout.ended_at is not None:
        await opened(database)
        assert await _state(database) == "candidate"


async def _state(database: Database) -> str:
    async with database.read() as session:
        [found], _ = await version_views.page(session, 1)
    return str(found["state"])


async def test_one_sidecar_decides_until_it_is_gone(database: Database) -> None:
    async with database.write() as session:
        one = await sidecars.register(session, "one", 60, now=NOW, alone=False)
        other = await sidecars.register(session, "other", 60, now=NOW, alone=False)
    rollout = await opened(database)
    async with database.write() as session:
        assert await rollouts.claim(session, rollout.id, one)
        assert await rollouts.claim(session, rollout.id, one)
        assert not await rollouts.claim(session, rollout.id, other)
        await sidecars.resign(session, one)
    async with database.write() as session:
        await sidecars.take_over(session, other, [one], NOW)
        assert await rollouts.claim(session, rollout.id, other)


async def test_a_restored_store_serves_no_version(database: Database, store_url: str) -> None:
    await carried_out(database, await opened(database), begun())
    async with database.write() as session:
        await rollouts.end_all(session, NOW + 9)
    [(state, reason)] = await stored_rows(store_url, "SELECT state, reason FROM rollouts")
    assert state == "aborted"
    assert reason.startswith("the store was restored from a backup")
    async with database.read() as session:
        assert (await serving.current(session)).share == 0
