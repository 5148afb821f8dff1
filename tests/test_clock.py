"""A clock that was set back: nothing waits for it to come to where it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from experiment_store import Tried
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncSession
from stores import ON_BOTH_STORES, stored_rows

from slipstream.cluster.clock import ClockWatch
from slipstream.store import budget, commits, erasure, quarantine, replays, runs, webhook
from slipstream.store.bodies import pack
from slipstream.store.clock_skew import bring_back
from slipstream.store.database import Database
from slipstream.store.recording import NewCall, add_calls
from slipstream.store.segments import whole
from slipstream.store.states import CommitState, ExperimentState, GroupState
from slipstream.store.tables.capture import TaskRow
from slipstream.store.tables.facade import FacadeGroupRow
from slipstream.store.tables.feedback import FeedbackRow
from slipstream.store.tables.privacy import ErasureRow
from slipstream.store.tables.runs import GroupRow, RunRow
from slipstream.store.tasks import NewMark, add_mark

NOW = 1_800_000_000.0
HALF_AN_HOUR = 1800.0


class Clocks:
    """One that is set, and one that only goes on."""

    def __init__(self) -> None:
        self.wall = NOW
        self.steady = 5.0

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


async def write(database: Database, at: float) -> None:
    """A task that waits for its idle time, runs that wait for theirs, a group of the facade, feedback, a deletion."""
    run: dict[str, Any] = {"group_id": "g", "updated_at": at}
    async with database.write() as session:
        await session.execute(
            insert(TaskRow).values(id="t", session_id="s", state="open", created_at=at, updated_at=at)
        )
        await session.execute(insert(GroupRow).values(id="g", task_id="t", updated_at=at))
        await session.execute(insert(RunRow).values(**run, run_id=0, state="pending", due_at=at + 4))
        await session.execute(insert(RunRow).values(**run, run_id=1, state="answered", due_at=at + 60))
        await session.execute(insert(RunRow).values(**run, run_id=2, state="scored", due_at=at))
        await session.execute(insert(FacadeGroupRow).values(id="f", updated_at=at))
        await session.execute(insert(FeedbackRow).values(id="said", created_at=at))
        deletion: dict[str, Any] = {"kind": "session_id", "ref": "gone", "pending": False, "told": {}}
        await session.execute(insert(ErasureRow).values(**deletion, at=at))


async def times(store_url: str) -> list[float]:
    """When each is due, was last touched, or was posted, in seconds from NOW."""
    found = await stored_rows(store_url, "SELECT due_at FROM runs ORDER BY run_id")
    for table in ("tasks", "facade_groups"):
        found += await stored_rows(store_url, f"SELECT updated_at FROM {table}")
    found += await stored_rows(store_url, "SELECT created_at FROM feedback")
    found += await stored_rows(store_url, "SELECT at FROM erasures")
    return [row[0] - NOW for row in found]


@ON_BOTH_STORES
async def test_what_waits_is_moved_by_as_much_as_its_clock_was_ahead(store_url: str) -> None:
    database, clocks = Database(store_url), Clocks()
    await database.open()
    watch = ClockWatch(database, clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    await watch.step()

    clocks.wall += HALF_AN_HOUR
    await watch.step()
    await write(database, clocks.wall)
    clocks.pass_(1)
    await watch.step()
    ahead = [HALF_AN_HOUR + seconds for seconds in (4, 60, 0, 0, 0, 0, 0)]
    assert await times(store_url) == ahead, "set forward, or as it is: nothing is moved"

    clocks.wall -= HALF_AN_HOUR
    await watch.step()
    scored = HALF_AN_HOUR  # of what has ended nothing waits
    assert await times(store_url) == [5, 61, scored, 1, 1, 1, 1]
    await database.close()


@ON_BOTH_STORES
async def test_what_a_deleted_session_says_after_the_clock_was_set_back_is_stored_and_what_it_said_before_is_not(
    store_url: str,
) -> None:
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        await erasure.erase(session, "session_id", "s", NOW + HALF_AN_HOUR)
        await bring_back(session, NOW, tolerated=5)

    def call(of: str, task_id: str, at: float) -> NewCall:
        return NewCall(of, task_id, whole(b"{}"), pack({}), None, 1.0, at, True, False, frozenset(), {})

    calls = [
        call("s", "before", NOW + HALF_AN_HOUR - 1),
        call("another", "of another", NOW + HALF_AN_HOUR - 1),
        call("s", "after", NOW + 2),
    ]
    async with database.write() as session:
        await add_calls(session, calls, NOW + 3)
    assert await stored_rows(store_url, "SELECT id FROM tasks ORDER BY id") == [("after",), ("of another",)]
    await database.close()


@ON_BOTH_STORES
@pytest.mark.parametrize("again", [False, True], ids=["by itself", "asked for again"])
async def test_a_deletion_that_waited_for_a_delivery_while_the_clock_was_set_back_is_of_now_once_it_is_done(
    store_url: str, again: bool
) -> None:
    database = Database(store_url)
    await database.open()
    await write(database, NOW + HALF_AN_HOUR)
    delivering = update(GroupRow).where(GroupRow.id == "g")
    async with database.write() as session:
        await session.execute(delivering.values(state=GroupState.COMMITTING))
        assert (await erasure.erase(session, "session_id", "s", NOW + HALF_AN_HOUR + 1)).pending_groups == 1
        await bring_back(session, NOW, tolerated=5)
    session_s = "session_id", "s"
    async with database.write() as session:
        assert (await erasure.go_on(session, NOW + 1))[0].pending_groups == 1
        assert (await erasure.standing(session, 0.0))[session_s] == NOW + HALF_AN_HOUR + 1
        await session.execute(delivering.values(state=GroupState.DELIVERED))
    async with database.write() as session:
        if again:
            done = await erasure.erase(session, "session_id", "s", NOW + 2)
        else:
            [done] = await erasure.go_on(session, NOW + 2)
        assert (done.pending_groups, done.rows["tasks"], done.at) == (0, 1, NOW + HALF_AN_HOUR + 1)
    async with database.write() as session:
        assert (await erasure.standing(session, 0.0))[session_s] == NOW + 2
        assert await erasure.go_on(session, NOW + 3) == []
    await database.close()


async def test_a_deletion_of_what_a_clock_that_was_ahead_wrote_is_of_its_own_time(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    await write(database, NOW + HALF_AN_HOUR)
    async with database.write() as session:
        await bring_back(session, NOW, tolerated=5)
    async with database.write() as session:
        assert (await erasure.erase(session, "session_id", "s", NOW + 100)).rows["tasks"] == 1
        standing = await erasure.standing(session, 0.0)
    assert standing == {("session_id", "gone"): NOW, ("session_id", "s"): NOW + 100}
    await database.close()


async def test_a_mark_that_a_clock_that_was_ahead_took_for_expired_is_applied(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        mark = NewMark(id="m", task_id="t", msg_id=None, labels=["vip"], metadata={}, ttl=60.0)
        assert (await add_mark(session, mark, NOW)).state == "waiting"
    await write(database, NOW + HALF_AN_HOUR)
    async with database.write() as session:
        await bring_back(session, NOW + 1, tolerated=5)
    assert await stored_rows(store_url, "SELECT state FROM marks") == [("applied",)]
    assert await stored_rows(store_url, "SELECT marked, decided FROM tasks") == [(True, False)]
    await database.close()


@ON_BOTH_STORES
async def test_a_run_that_was_scored_while_the_clock_was_ahead_is_scored_again_at_once(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    await write(database, NOW + HALF_AN_HOUR)
    async with database.write() as session:
        for run_id in (1, 2):
            await session.execute(update(RunRow).where(RunRow.run_id == run_id).values(msg_id=f"policy-{run_id}"))
        await session.execute(update(RunRow).where(RunRow.run_id == 2).values(updated_at=NOW))  # it ended just after
        await session.execute(update(TaskRow).values(state="complete"))
        await bring_back(session, NOW, tolerated=5)
        mark = NewMark(id="m", task_id="t", msg_id=None, labels=[], metadata={"reference": "42"}, ttl=60.0)
        assert (await add_mark(session, mark, NOW + 1)).rescore
    async with database.write() as session:
        await runs.claim_answers(session, 1, 9, NOW + 1)
        due = await quarantine.due_answers(session, 1, 9, NOW + 1)
    of_run = dict(await stored_rows(store_url, "SELECT id, run_id FROM runs"))
    assert [of_run[one.pk] for one in due] == [2], "run 1 waits for the end of its grace"
    await database.close()


async def test_an_earlier_process_may_have_been_ahead(store_url: str) -> None:
    database, clocks = Database(store_url), Clocks()
    await database.open()
    await write(database, NOW + HALF_AN_HOUR)
    await ClockWatch(database, clock=lambda: clocks.wall, monotonic=lambda: clocks.steady).step()
    assert (await times(store_url))[:2] == [4, 60]
    await database.close()


async def test_what_is_written_late_by_one_who_had_asked_the_time_before_is_moved_too(store_url: str) -> None:
    database, clocks = Database(store_url), Clocks()
    await database.open()
    watch = ClockWatch(database, clock=lambda: clocks.wall, monotonic=lambda: clocks.steady)
    await watch.step()
    asked_before = clocks.wall + HALF_AN_HOUR  # while it was ahead
    clocks.wall += HALF_AN_HOUR
    await watch.step()

    clocks.wall -= HALF_AN_HOUR
    await watch.step()
    await write(database, asked_before)
    clocks.pass_(1)
    await watch.step()
    assert (await times(store_url))[:2] == [5, 61]
    await database.close()


async def _taken_over(session: AsyncSession, now: float) -> None:
    """Its sidecar is gone, and the endpoint is told of it again at once."""
    await webhook.tell_again(session, [7], now)


async def _heard_of(session: AsyncSession, now: float) -> None:
    """A call of it is under way, so that it stays open."""
    await replays.keep_open(session, [1], now, now)


@pytest.mark.parametrize("touch", [_taken_over, _heard_of])
async def test_what_was_begun_before_and_touched_while_the_clock_was_ahead_is_moved(
    store_url: str, touch: Callable[[AsyncSession, float], Awaitable[None]]
) -> None:
    database = Database(store_url)
    await database.open()
    await write(database, NOW)
    async with database.write() as session:
        await session.execute(update(RunRow).where(RunRow.id == 1).values(state="open", owner=7))
        await touch(session, NOW + HALF_AN_HOUR)
    async with database.write() as session:
        await bring_back(session, NOW + 1, tolerated=5)
    assert (await times(store_url))[0] == 1
    await database.close()


@ON_BOTH_STORES
async def test_what_was_spent_while_the_clock_was_ahead_is_of_this_hour_and_no_later_one(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    async with database.write() as session:
        for at in (NOW, NOW + HALF_AN_HOUR, NOW + HALF_AN_HOUR + 60):
            await budget.spend(session, "runs", 1, 10, at)
        await budget.spend(session, "judge", 2, 0, NOW + HALF_AN_HOUR)
    async with database.write() as session:
        await bring_back(session, NOW, tolerated=5)
    async with database.read() as session:
        assert await budget.spent(session, "runs", NOW) == (3, 30)
        assert await budget.spent(session, "judge", NOW) == (2, 0)
        assert await budget.spent(session, "runs", NOW + 3600) == (0, 0)
    await database.close()


@ON_BOTH_STORES
async def test_what_was_delivered_is_added_up_in_its_order_and_not_by_its_dates(store_url: str) -> None:
    database = Database(store_url)
    await database.open()
    for experiences, ended_at in ((5, NOW), (7, NOW + HALF_AN_HOUR), (2, NOW + 1), (3, NOW + 2)):
        async with database.write() as session:
            last = await commits.last(session)
            begun = await commits.begin(
                session, "interval", 1, ended_at, (0, 0, 0), after=None if last is None else last[0]
            )
            assert begun is not None
            commit, groups = begun
            assert groups == []
            await commits.ask(session, commit.id, 0)
            await commits.end(session, commit.id, CommitState.DELIVERED, ended_at, experiences=experiences)
    async with database.read() as session:
        assert await commits.delivered_experiences(session) == 17
    await database.close()


@ON_BOTH_STORES
async def test_an_experiment_that_was_started_while_the_clock_was_ahead_goes_on(database: Database) -> None:
    tried = Tried(database)
    await tried.start()

    async def set_back() -> None:
        tried.now = NOW
        async with tried.database.write() as session:
            await bring_back(session, NOW, tolerated=5)

    tried.now = NOW + 86400
    await tried.try_()
    tried.lane.problem = "there is no checkpoint 8"
    await set_back()
    await tried.pass_(600)
    assert (await tried.experiment()).state is ExperimentState.FAILED

    tried.lane.problem = None
    tried.now = NOW + 86400
    await tried.try_(ends="duration", duration=600)
    await tried.pass_(0)
    await tried.users(6, "ahead")
    await tried.pass_(120)
    await tried.users(2, "late")  # not counted yet
    await set_back()
    await tried.users(60, feedback=(0.0, 1.0))
    await tried.pass_(600)
    await tried.pass_(120)
    experiment = await tried.experiment(2)
    assert (experiment.state, experiment.winner) == (ExperimentState.DECIDED, "b")
    await tried.close()
