"""A clock that was set back: nothing waits for it to come to where it was."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert
from stores import ON_BOTH_STORES, stored_rows

from slipstream.clock import ClockWatch
from slipstream.store.database import Database
from slipstream.store.tables import FacadeGroupRow, GroupRow, RunRow, TaskRow

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
    """A task that waits for its idle time, runs that wait for theirs, and a group of the facade."""
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


async def times(store_url: str) -> list[float]:
    """When each is due, or was last touched, in seconds from NOW."""
    found = await stored_rows(store_url, "SELECT due_at FROM runs ORDER BY run_id")
    for table in ("tasks", "facade_groups"):
        found += await stored_rows(store_url, f"SELECT updated_at FROM {table}")
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
    ahead = [HALF_AN_HOUR + seconds for seconds in (4, 60, 0, 0, 0)]
    assert await times(store_url) == ahead, "set forward, or as it is: nothing is moved"

    clocks.wall -= HALF_AN_HOUR
    await watch.step()
    scored = HALF_AN_HOUR  # of what has ended nothing waits
    assert await times(store_url) == [5, 61, scored, 1, 1]
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
