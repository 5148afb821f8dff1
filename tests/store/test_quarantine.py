"""Runs and tasks that their sidecar died of three times are set apart, on both stores; those beside them are not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select
from stores import ON_BOTH_STORES

from slipstream.store import planning, quarantine, quarantine_release, runs, sidecars, tasks, webhook
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.recording import NewCall, add_calls
from slipstream.store.runs import Answered
from slipstream.store.segments import whole
from slipstream.store.states import GroupState, RunState, TaskState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.webhook import ClaimedReplay
from slipstream.tenants import qualified

NOW = 1_000_000.0
CALL = NewCall("s", "t", whole(b"{}"), pack({}), None, 1.0, NOW, True, False, frozenset(), {})

pytestmark = ON_BOTH_STORES


class Life:
    """One sidecar after the other over a store."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sidecar = 0
        self.claimed: dict[int, ClaimedReplay] = {}

    async def next(self, *, killed: bool = True) -> None:
        """End the sidecar, and start the next in its place."""
        async with self.database.write() as session:
            if self.sidecar and not killed:
                await quarantine.forgive(session, self.sidecar)
            if self.sidecar:
                await sidecars.resign(session, self.sidecar)
            before = self.sidecar
            self.sidecar = await sidecars.register(session, "it", 60, now=NOW, alone=False)
            if before:
                await sidecars.take_over(session, self.sidecar, [before], NOW)

    async def run_states(self) -> list[RunState]:
        async with self.database.read() as session:
            return list(await session.scalars(select(RunRow.state).order_by(RunRow.id)))

    async def sent(self) -> list[int]:
        """Take all runs that may be sent, as numbers counted from 0."""
        async with self.database.write() as session:
            return sorted(run.run_id for run in await runs.claim(session, self.sidecar, 10, NOW))

    async def told(self) -> list[int]:
        """Take all runs that an endpoint may be told of, as numbers counted from 0."""
        async with self.database.write() as session:
            claimed = await webhook.claim(session, 10, NOW, NOW + 60, self.sidecar)
        self.claimed |= {run.run_id: run for run in claimed}
        return sorted(run.run_id for run in claimed)

    async def scored(self) -> list[int]:
        """Begin to score all runs that may be."""
        async with self.database.write() as session:
            await runs.claim_answers(session, self.sidecar, 10, NOW)
            due = await quarantine.due_answers(session, self.sidecar, 10, NOW)
            await quarantine.begin_scoring(session, due)
            query = select(RunRow.run_id).where(RunRow.id.in_([run.pk for run in due]))
            return sorted(await session.scalars(query))

    async def answer(self, *run_ids: int) -> None:
        async with self.database.write() as session:
            pks = list(await session.scalars(select(RunRow.id).where(RunRow.run_id.in_(run_ids))))
            packed = pack({})
            answers = [Answered(pk, self.sidecar, f"m{pk}", packed, packed, 1.0, 0, 0.0) for pk in pks]
            assert await runs.answer(session, answers, NOW) == len(run_ids)


@pytest.fixture
async def life(store_url: str) -> AsyncIterator[Life]:
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        await add_calls(session, [CALL], NOW)
    made = Life(database)
    await made.next()
    yield made
    await database.close()


async def plan(life: Life, repeat_time: int) -> None:
    async with life.database.write() as session:
        await planning.plan(session, await planning.unplanned(session, ["t"]), repeat_time, NOW)


async def test_the_run_that_is_on_its_way_at_three_deaths_is_set_apart_and_its_group_goes_on(life: Life) -> None:
    await plan(life, 3)
    assert await life.sent() == [0, 1, 2]
    await life.next()
    assert await life.sent() == [0], "of those that were on their way at a death one at a time"
    assert await life.sent() == []
    await life.answer(0)
    assert await life.sent() == [1]
    await life.next()
    assert await life.sent() == [1], "the longest due first, which it was at the second death too"
    await life.next()
    assert await life.run_states() == [RunState.ANSWERED, RunState.QUARANTINED, RunState.PENDING]
    assert await life.sent() == [2]
    await life.answer(2)
    assert (await life.run_states()).count(RunState.ANSWERED) == 2
    async with life.database.read() as session:
        assert await quarantine.count(session) == {"exchange": 0, "task": 0, "run": 1}


async def test_the_run_that_an_endpoint_is_told_of_at_three_deaths_is_set_apart(life: Life) -> None:
    async with life.database.write() as session:
        await webhook.plan(session, ["t"], 3, NOW)
    assert await life.told() == [0, 1, 2]
    await life.next(killed=False)
    assert await life.told() == [0, 1, 2], "an orderly end is nobody's death"
    await life.next()
    assert await life.told() == [0], "of those that were being told of at a death one at a time"
    assert await life.told() == []
    async with life.database.write() as session:
        assert await webhook.postpone(session, life.claimed[0], 0, 60.0, NOW), "what became of it is known"
    assert await life.told() == [1]
    await life.next()
    assert await life.told() == [1]
    await life.next()
    assert await life.run_states() == [RunState.PENDING, RunState.QUARANTINED, RunState.PENDING]
    async with life.database.write() as session:
        some = await quarantine_release.listed(session, None, 10)
        assert await quarantine_release.retry(session, some, life.sidecar, NOW) == 1
    assert await life.told() == [1, 2], "one without a death, and one with two"


async def test_the_run_that_is_scored_at_three_deaths_is_set_apart(life: Life) -> None:
    await plan(life, 2)
    await life.sent()
    await life.answer(0, 1)
    assert await life.scored() == [0, 1]
    for _ in range(2):
        await life.next()
        assert await life.scored() == [0]
    await life.next()
    assert await life.run_states() == [RunState.QUARANTINED, RunState.ANSWERED]
    async with life.database.write() as session:
        await runs.claim_answers(session, life.sidecar, 10, NOW)
        [due] = await quarantine.due_answers(session, life.sidecar, 10, NOW)
        await runs.end(session, [runs.Ended(due.pk, life.sidecar, 0.5, revision=0)], NOW)
        group = await session.scalar(select(GroupRow.state))
        assert group == GroupState.DROPPED, "one reward of two is compared with nothing"
        assert (await add_calls(session, [CALL], NOW)).rescore
    assert await life.run_states() == [RunState.QUARANTINED, RunState.ANSWERED], "though their task goes on"


@pytest.mark.slow
async def test_an_orderly_end_is_no_death(life: Life) -> None:
    await plan(life, 2)
    for _ in range(5):
        assert await life.sent() == [0, 1]
        await life.next(killed=False)
    assert await life.run_states() == [RunState.PENDING, RunState.PENDING]


@pytest.mark.slow
async def test_a_run_that_comes_back_has_no_deaths(life: Life) -> None:
    await plan(life, 1)
    for _ in range(5):
        assert await life.sent() == [0]
        async with life.database.write() as session:
            pk = await session.scalar(select(RunRow.id))
            assert pk is not None
            await runs.postpone(session, [runs.Postponed(pk, life.sidecar, 0, 0.0)], NOW)
    assert await life.run_states() == [RunState.PENDING]


async def test_the_task_that_is_decided_at_three_deaths_is_set_apart(life: Life) -> None:
    for _ in range(3):
        async with life.database.write() as session:
            assert [task.task_id for task in await tasks.undecided(session, life.sidecar, 10)] == ["t"]
        await life.next()
    async with life.database.write() as session:
        assert await tasks.undecided(session, life.sidecar, 10) == []
        assert (await session.get_one(TaskRow, "t")).state == TaskState.QUARANTINED


async def test_a_run_that_is_set_apart_is_tried_again_or_dropped(life: Life) -> None:
    await plan(life, 1)
    for _ in range(2):
        for _ in range(3):
            assert await life.sent() == [0]
            await life.next()
        assert await life.run_states() == [RunState.QUARANTINED]
        async with life.database.write() as session:
            [one] = await quarantine_release.listed(session, None, 10)
            assert (one.kind, one.task_id) == ("run", "t")
            assert await quarantine_release.listed(session, "another tenant", 10) == []
            assert await quarantine_release.retry(session, [one], life.sidecar, NOW) == 1
        assert await life.run_states() == [RunState.PENDING]
    for _ in range(3):
        await life.sent()
        await life.next()
    async with life.database.write() as session:
        some = await quarantine_release.listed(session, None, 10)
        assert await quarantine_release.drop(session, some, NOW) == 1
        assert await quarantine_release.drop(session, some, NOW) == 0
    assert await life.run_states() == [RunState.FAILED]


async def test_what_is_behind_the_first_of_a_kind_is_found_by_its_id_and_by_its_tenant(life: Life) -> None:
    async with life.database.write() as session:
        for at, whose in enumerate(("default", "default", "acme"), start=1):
            name = qualified(whose, f"t{at}")
            times = {"created_at": NOW, "updated_at": NOW + at}
            session.add(TaskRow(id=name, session_id=name, tenant=whose, state=TaskState.QUARANTINED, **times))
            await session.flush()
            session.add(GroupRow(id=f"g{at}", task_id=name, updated_at=NOW))
            await session.flush()
            session.add(RunRow(group_id=f"g{at}", run_id=0, state=RunState.QUARANTINED, updated_at=NOW + at))
            await quarantine.quarantine_exchange(session, b"", NOW + at)
    async with life.database.read() as session:
        runs_apart = [str(pk) for pk in await session.scalars(select(RunRow.id).order_by(RunRow.id))]
        assert await quarantine.count(session) == {"exchange": 3, "task": 3, "run": 3}
        assert await quarantine.count(session, "acme") == {"task": 1, "run": 1}
        for tenant, kind, name, expected in (
            (None, None, None, ["1", "t1", runs_apart[0]]),
            ("acme", None, None, ["tenant=acme/t3", runs_apart[2]]),
            ("acme", "run", None, [runs_apart[2]]),
            ("acme", "exchange", "3", []),
            (None, "exchange", "3", ["3"]),
            (None, "task", "tenant=acme/t3", ["tenant=acme/t3"]),
            (None, "run", runs_apart[2], [runs_apart[2]]),
            ("default", "run", runs_apart[2], []),
            (None, "run", "no number", []),
            (None, "run", "9" * 30, []),
        ):
            found = await quarantine_release.listed(session, tenant, 1, kind, name)
            assert [one.id for one in found] == expected, (tenant, kind, name)


async def test_a_task_that_is_set_apart_is_decided_again_or_not_selected(life: Life) -> None:
    for dropped in (False, True):
        for _ in range(3):
            async with life.database.write() as session:
                assert len(await tasks.undecided(session, life.sidecar, 10)) == 1
            await life.next()
        async with life.database.write() as session:
            some = await quarantine_release.listed(session, None, 10)
            release = (
                quarantine_release.drop(session, some, NOW)
                if dropped
                else quarantine_release.retry(session, some, life.sidecar, NOW)
            )
            assert await release == 1
    async with life.database.write() as session:
        assert await tasks.undecided(session, life.sidecar, 10) == []
        task = await session.get_one(TaskRow, "t")
    assert (task.state, task.selected, task.reason) == (TaskState.COMPLETE, False, "quarantined")
