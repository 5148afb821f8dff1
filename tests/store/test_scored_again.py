"""Runs that are not delivered are scored again when more is known of their task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, event, select
from sqlalchemy.ext.asyncio import AsyncSession
from stores import ON_BOTH_STORES

from slipstream.store import commits, planning, quarantine, ready_groups, runs, scoring_again, tasks
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.msg_ids import NamedCall, named_call
from slipstream.store.recording import Added, NewCall, add_calls
from slipstream.store.replaced_answers import Stored
from slipstream.store.runs import Answered, Ended
from slipstream.store.segments import whole
from slipstream.store.tables.runs import RunRow

NOW = 1_000_000.0

pytestmark = ON_BOTH_STORES


def new(task_id: str, msg_id: str, **fields: Any) -> NewCall:
    answer = pack({"id": msg_id})
    call = NewCall("s", task_id, whole(b"{}"), answer, msg_id, 1.0, NOW, True, False, frozenset(), {})
    return call._replace(**fields)


async def add(database: Database, *calls: NewCall) -> Added:
    async with database.write() as session:
        return await add_calls(session, calls, NOW)


async def _plan(database: Database, task_ids: Sequence[str], runs: int = 1) -> None:
    async with database.write() as session:
        await planning.plan(session, await planning.unplanned(session, task_ids), runs, NOW)


async def _due(session: AsyncSession) -> list[int]:
    """Answer each run that waits. Return those that are to be scored."""
    for run in await runs.claim(session, 1, 10, NOW):
        await runs.answer(session, [Answered(run.pk, 1, f"of-{run.group_id}", b"", b"", 1.0, None, 0.0)], NOW)
    await runs.claim_answers(session, 1, 10, NOW)
    return [run.pk for run in await quarantine.due_answers(session, 1, 10, NOW)]


async def _score(database: Database, reward: float | None = 0.5) -> list[str]:
    """Give each run that waits this reward, or none. Returns their groups."""
    async with database.write() as session:
        rows = (await session.scalars(select(RunRow).where(RunRow.id.in_(await _due(session))))).all()
        await runs.end(session, [Ended(row.id, 1, reward, revision=row.revision) for row in rows], NOW)
    return sorted(row.group_id for row in rows)


async def test_runs_of_an_answer_that_a_retry_replaces_are_scored_again(database: Database) -> None:
    await add(database, new("t", "1"), new("u", "2"))
    await _plan(database, ["t", "u"])
    assert await _score(database) == ["t.0", "u.0"]
    left = await add(database, new("t", "3", started_at=NOW + 5, replaces=Stored("1", NOW)))
    assert left.rescore
    async with database.read() as session:
        assert await ready_groups.ready_experiences(session) == 1, "of the other task"
    assert await _score(database) == ["t.0"]
    async with database.read() as session:
        assert await ready_groups.ready_experiences(session) == 2


@pytest.mark.parametrize("idle", [False, True])
async def test_runs_are_scored_again_once_a_turn_when_it_is_complete(database: Database, idle: bool) -> None:
    await add(database, new("t", "1"))
    await _plan(database, ["t"], runs=2)
    assert await _score(database) == ["t.0", "t.0"]
    for msg_id in ("2", "3"):
        assert not (await add(database, new("t", msg_id, completes=False))).rescore
    async with database.write() as session:
        assert (await tasks.add_mark(session, tasks.NewMark("m", "t", None, [], {"reference": "4"}, 9.0), NOW)).rescore
    assert await _score(database) == [], "a task that goes on has no last answer yet"
    if idle:
        async with database.write() as session:
            assert await tasks.complete_idle(session, NOW + 60)
    else:
        assert (await add(database, new("t", "4"))).rescore
    assert await _score(database) == ["t.0", "t.0"]
    async with database.write() as session:
        assert not await tasks.complete_idle(session, NOW + 60)


@pytest.mark.parametrize("scored_late", [False, True], ids=["scored before", "score under way"])
async def test_a_commit_takes_nothing_of_a_task_that_goes_on(database: Database, scored_late: bool) -> None:
    """Its rewards are for a conversation that was not over."""
    await add(database, new("t", "1"), new("other", "2"))
    await _plan(database, ["t", "other"])
    under_way = new("t", "3", completes=False)
    if scored_late:
        async with database.write() as session:
            due = await _due(session)
        await add(database, under_way)
        async with database.write() as session:
            await runs.end(session, [Ended(pk, 1, 0.5, revision=0) for pk in due], NOW)
    else:
        assert await _score(database) == ["other.0", "t.0"]
        await add(database, under_way)

    async def committed(after: int | None) -> list[str]:
        async with database.write() as session:
            count = await ready_groups.ready_experiences(session)
            begun = await commits.begin(session, "manual", 1, NOW, (0, 0, 0), after=after)
        assert begun is not None
        assert len(begun[1]) == count
        return [group.id for group in begun[1]]

    assert await committed(None) == ["other.0"]
    assert (await add(database, new("t", "4"))).rescore
    assert await committed(1) == [], "its reward is not of the whole turn"
    assert await _score(database) == ["t.0"]
    assert await committed(2) == ["t.0"]


async def test_what_waits_for_its_task_does_not_wait_for_a_commit(database: Database) -> None:
    await add(database, new("t", "1"))
    await _plan(database, ["t"])
    waits = list[float | None]()
    for call in (None, new("t", "2", completes=False), new("t", "3")):
        if call is not None:
            await add(database, call)
        await _score(database)
        async with database.read() as session:
            waits.append(await ready_groups.oldest_waiting(session))
    assert waits == [NOW, None, NOW]


async def test_a_further_call_does_not_bring_back_what_could_not_be_scored(database: Database) -> None:
    await add(database, new("t", "1"))
    await _plan(database, ["t"])
    assert await _score(database, reward=None) == ["t.0"]
    assert not (await add(database, new("t", "2"))).rescore
    assert await _score(database) == []
    assert (await add(database, new("t", "3", started_at=NOW + 5, replaces=Stored("2", NOW)))).rescore
    assert await _score(database) == ["t.0"]


async def test_what_scores_many_runs_again_asks_the_store_no_more_for_each(
    database: Database, asked: list[str]
) -> None:
    statements = []
    for task_id, count in (("few", 1), ("many", 9)):
        await add(database, *(new(task_id, f"{task_id}{at}") for at in range(count)))
        await _plan(database, [task_id])
        assert len(await _score(database)) == count
        asked.clear()
        assert (await add(database, new(task_id, "next"))).rescore
        statements.append(len(asked))
        assert len(await _score(database)) == count
    assert statements[0] == statements[1]


async def test_it_looks_at_no_other_groups_and_runs(database: Database) -> None:
    if database.shared:
        pytest.skip("the words of SQLite's plans")
    statements: list[tuple[str, Any]] = []

    def executed(_conn: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        if statement.startswith(("SELECT", "UPDATE")) and not many:
            statements.append((statement, parameters))

    names = [f"t{at}" for at in range(60)]
    await add(database, *(new(name, f"of {name}") for name in names))
    await _plan(database, names)
    event.listen(Engine, "before_cursor_execute", executed)
    for dropped in (True, False):
        async with database.write() as session:
            await scoring_again.score_tasks_again(session, names, dropped=dropped)
    event.remove(Engine, "before_cursor_execute", executed)
    async with database.read() as session:
        connection = await session.connection()
        for statement, parameters in statements:
            plan = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)).all()
            assert all("SCAN" not in row[3] and "state" not in row[3] for row in plan), (statement, plan)


@pytest.mark.parametrize("calls", [[None], ["x"], [{"function": "f"}], [{"function": ["f"]}], {"a": 1}, "abc", 5])
async def test_a_retry_of_an_answer_with_calls_of_another_form_is_stored(database: Database, calls: Any) -> None:
    def answer(msg_id: str) -> bytes:
        return pack({"id": msg_id, "choices": [{"message": {"role": "assistant", "tool_calls": calls}}]})

    await add(database, new("t", "1", answer=answer("1")))
    again = new("t", "2", answer=answer("2"), started_at=NOW + 5, replaces=Stored("1", NOW))
    await add(database, again)
    async with database.read() as session:
        assert (await named_call(session, "1")) == NamedCall(1, same=True)
