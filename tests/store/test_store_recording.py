"""Calls come into the store a batch at a time, and are as they would be one by one."""

from __future__ import annotations

from typing import Any

import pytest
import segments_kept
from sqlalchemy import select
from stores import ON_BOTH_STORES

from slipstream.capture.prefixes import Messages, Prefixes
from slipstream.dialects.elements import split
from slipstream.jsontext import to_json
from slipstream.selection import Decision
from slipstream.store import (
    erasure,
    feedback,
    feedback_views,
    live_scores,
    planning,
    segments,
    tasks,
    tenancy,
    training_answers,
)
from slipstream.store.bodies import pack, unpack
from slipstream.store.database import Database
from slipstream.store.feedback import NewFeedback
from slipstream.store.recording import Added, NewCall, add_calls
from slipstream.store.replaced_answers import Stored
from slipstream.store.segments import NewRequest, whole
from slipstream.store.tables.capture import CallRow, ReplacedAnswerRow, TaskRow
from slipstream.store.tables.feedback import FeedbackTargetRow, MarkRow
from slipstream.tenants import qualified

NOW = 1_000_000.0
LEFT, TAKEN = Decision(False, "not_sampled"), Decision(True, "sampling", frozenset({"drawn"}), {"why": "luck"})

pytestmark = ON_BOTH_STORES


def new(task_id: str, msg_id: str | None = None, **fields: Any) -> NewCall:
    given: dict[str, Any] = {
        "session_id": "s", "task_id": task_id, "request": whole(to_json({"of": msg_id})),
        "answer": pack({"id": msg_id}), "msg_id": msg_id, "latency": 1.0, "started_at": NOW, "completes": True,
        "marked": False, "labels": frozenset(), "metadata": {},
    }  # fmt: skip
    return NewCall(**given | fields)


def saying(words: str | None, **more: Any) -> bytes:
    return pack({"choices": [{"message": {"role": "assistant", "content": words} | more}]})


async def add(database: Database, *calls: NewCall, now: float = NOW) -> Added:
    async with database.write() as session:
        return await add_calls(session, calls, now)


async def task(database: Database, task_id: str) -> TaskRow:
    async with database.read() as session:
        return await session.get_one(TaskRow, task_id)


async def calls(database: Database, task_id: str) -> list[tuple[int, str | None]]:
    async with database.read() as session:
        query = select(CallRow).where(CallRow.task_id == task_id).order_by(CallRow.id)
        rows = (await session.scalars(query)).all()
    assert all(unpack(row.request) == {"of": row.msg_id} for row in rows)
    return [(row.position, row.msg_id) for row in rows]


async def test_calls_of_many_tasks_go_to_the_end_of_each(database: Database) -> None:
    left = await add(database, new("a", "1", completes=False), new("b", "2"), new("a", "3", completes=False))
    assert left == Added(undecided=True, rescore=False)
    await add(database, new("a", "4"), new("c", None, new_task=True, session_id="other"), now=NOW + 5)

    assert await calls(database, "a") == [(0, "1"), (1, "3"), (2, "4")]
    assert await calls(database, "b") == [(0, "2")]
    assert await calls(database, "c") == [(0, None)]
    a, b, c = [await task(database, name) for name in "abc"]
    assert (a.state, a.revision, a.created_at, a.updated_at) == ("complete", 3, NOW, NOW + 5)
    assert (b.state, b.revision, b.updated_at, b.session_id) == ("complete", 1, NOW, "s")
    assert (c.session_id, c.created_at) == ("other", NOW + 5)


async def test_a_task_opens_again_and_keeps_its_session_and_what_was_said_of_it(database: Database) -> None:
    await add(database, new("t", marked=True, labels=frozenset({"b"}), metadata={"x": 1, "y": 1}))
    await add(database, new("t", session_id="later", completes=False, labels=frozenset({"a"}), metadata={"y": "é"}))
    row = await task(database, "t")
    assert (row.state, row.session_id, row.marked, row.labels) == ("open", "s", True, ["a", "b"])
    assert row.meta == {"x": 1, "y": "é"}


async def test_a_retry_takes_the_row_of_the_attempt_before_with_its_runs_and_its_feedback(database: Database) -> None:
    await add(database, new("t", "0", completes=False), new("t", "1"))
    async with database.write() as session:
        [row] = await session.scalars(select(CallRow).where(CallRow.msg_id == "1"))
        await planning.plan(session, [planning.CapturedCall(row.id, "t", 1)], 2, NOW)
        await feedback.add(session, NewFeedback("of-task", "task_id", ("t",), 1.0), NOW)
        await feedback.add(session, NewFeedback("of-second", "msg_id", ("2",), 0.5), NOW)
        await live_scores.save(session, {row.id: live_scores.LiveScore(1.0, {})}, NOW)
    before = Stored("1", NOW)
    await add(database, new("t", "2", started_at=NOW + 5, replaces=before), new("t", "3", replaces=Stored("gone", NOW)))

    assert await calls(database, "t") == [(0, "0"), (1, "2"), (2, "3")]
    async with database.read() as session:
        assert [call.position for call in await planning.unplanned(session, ["t"])] == [0, 2]
        found = await session.scalars(select(FeedbackTargetRow).order_by(FeedbackTargetRow.id))
        assert [target.call_pk for target in found] == [row.id, row.id]
        assert await live_scores.of_calls(session, {row.id}) == {}
    await add(database, new("t", "4", started_at=NOW + 9, replaces=Stored("2", NOW + 5)))
    assert await calls(database, "t") == [(0, "0"), (1, "2"), (2, "3"), (3, "4")], "who rated it has got it"


async def test_a_decision_comes_with_the_call(database: Database) -> None:
    left = await add(database, new("no", new_task=True, decision=LEFT))
    assert left == Added(undecided=False, rescore=False)
    left = await add(database, new("yes", new_task=True, decision=TAKEN, labels=frozenset({"math"}), metadata={"a": 1}))
    assert left.undecided, "its runs are to be planned"

    row = await task(database, "no")
    assert (row.decided, row.selected, row.reason) == (True, False, "not_sampled")
    row = await task(database, "yes")
    assert (row.decided, row.selected, row.reason) == (False, True, "sampling")
    assert (row.labels, row.meta) == (["drawn", "math"], {"why": "luck", "a": 1})
    async with database.read() as session:
        assert [task.task_id for task in await tasks.undecided(session, 0, 10)] == ["yes"]


async def test_a_second_call_has_the_task_decided_anew(database: Database) -> None:
    await add(database, new("t", new_task=True, decision=LEFT), new("t"))
    row = await task(database, "t")
    assert (row.decided, row.selected, row.revision) == (False, False, 2)


async def test_a_batch_that_was_stored_after_all_can_be_tried_again(database: Database) -> None:
    await add(database, new("t", "1", new_task=True, decision=TAKEN))
    await add(database, new("t", "1", new_task=False, decision=TAKEN))
    assert await calls(database, "t") == [(0, "1"), (1, "1")]
    assert (await task(database, "t")).selected


async def test_marks_that_waited_are_applied(database: Database) -> None:
    def mark(name: str, task_id: str | None = None, msg_id: str | None = None, ttl: float = 60) -> tasks.NewMark:
        return tasks.NewMark(name, task_id, msg_id, [name], {name: 1}, ttl)

    async with database.write() as session:
        for waiting in (
            mark("by_task", task_id="t"), mark("by_answer", msg_id="m2"), mark("late", task_id="t", ttl=0),
            mark("elsewhere", task_id="u"), mark("again", task_id="t"),
        ):  # fmt: skip
            await tasks.add_mark(session, waiting, NOW)
    left = await add(
        database,
        new("t", "m1", new_task=True, decision=LEFT),
        new("v", "m3", new_task=True, decision=LEFT),
        new("w", "m2", new_task=True, decision=LEFT),
    )
    assert left.undecided, "the marked ones"
    t, v, w = [await task(database, name) for name in "tvw"]
    assert (t.marked, t.labels, t.meta) == (True, ["again", "by_task"], {"again": 1, "by_task": 1})
    assert (w.marked, w.labels, w.decided, w.revision) == (True, ["by_answer"], False, 2)
    assert (v.marked, v.decided) == (False, True)
    async with database.read() as session:
        states = {row.id: row.state for row in await session.scalars(select(MarkRow))}
    assert states == {
        "by_task": "applied", "again": "applied", "by_answer": "applied", "late": "waiting", "elsewhere": "waiting",
    }  # fmt: skip


async def _said(database: Database, name: str, kind: feedback.Kind, now: float) -> None:
    async with database.write() as session:
        await feedback.add(session, NewFeedback(name, kind, (name,), 1.0), now)


async def _about(database: Database, name: str) -> tuple[str, str | None]:
    """What became of a feedback: its state, and the msg_id of the answer that it is about."""
    async with database.read() as session:
        target = (await session.scalars(select(feedback.FeedbackTargetRow).filter_by(feedback_id=name))).one()
        call = await session.get(CallRow, target.call_pk) if target.call_pk is not None else None
    return target.state, call.msg_id if call else None


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "at once"])
async def test_an_answer_whose_place_a_retry_took_is_still_known_by_its_id(database: Database, at_once: bool) -> None:
    named = {name: qualified("acme", name) for name in ("t", "1", "2", "3")}
    tries = [
        new(named["t"], named["1"], session_id=named["t"], answer=saying("good")),
        new(named["t"], named["2"], answer=saying("better"), started_at=NOW + 5, replaces=Stored(named["1"], NOW)),
        new(named["t"], named["3"], answer=saying("better"), started_at=NOW + 9, replaces=Stored(named["2"], NOW + 5)),
    ]
    for batch in [tries] if at_once else [[one] for one in tries]:
        await add(database, new("other"), *batch)
    assert await calls(database, named["t"]) == [(0, named["3"])]
    for name in "321":
        await _said(database, named[name], "msg_id", NOW + 20)
    assert await _about(database, named["3"]) == ("superseded", named["3"])
    assert await _about(database, named["2"]) == ("matched", named["3"]), "it says the same"
    assert await _about(database, named["1"]) == ("late", named["3"]), "it said something else"

    async with database.write() as session:
        [row] = await session.scalars(select(CallRow).where(CallRow.msg_id == named["3"]))
        assert len((await feedback_views.about_calls(session, [row.id]))[row.id]) == 2
        assert await tenancy.with_one_named(session, "msg_id", "1") == ["acme"]
        mark = await tasks.add_mark(session, tasks.NewMark("m", None, named["1"], ["liked"], {}, 60.0), NOW)
        assert mark.state == "applied"
    assert (await task(database, named["t"])).labels == ["liked"]
    async with database.write() as session:
        erased = await erasure.erase(session, "task_id", named["t"], NOW + 60)
        assert (erased.rows["feedback"], erased.rows["marks"]) == (3, 1)
        assert (await session.scalars(select(ReplacedAnswerRow))).all() == []


@pytest.mark.parametrize(("city", "state"), [("Bern", "matched"), ("Rome", "late")])
async def test_attempts_that_call_the_same_tools_say_the_same(database: Database, city: str, state: str) -> None:
    def calling(of: str, name: str) -> bytes:
        call = {"id": f"call_{name}", "type": "function", "function": {"name": "weather", "arguments": of}}
        return saying(None, tool_calls=[call], reasoning_content=f"thoughts {name}", reasoning=f"more {name}")

    await add(database, new("t", "1", answer=calling("Bern", "1")))
    await add(database, new("t", "2", answer=calling(city, "2"), started_at=NOW + 5, replaces=Stored("1", NOW)))
    await _said(database, "1", "msg_id", NOW + 6)
    assert await _about(database, "1") == (state, "2")


async def test_feedback_of_weight_0_is_kept_and_no_answer_is_judged_by_it(database: Database) -> None:
    await add(database, new("t", "1"), new("v", "2", session_id="other"))
    posts: list[tuple[str, feedback.Kind, str]] = [("muted", "session_id", "s"), ("alone", "msg_id", "2")]
    async with database.write() as session:
        await feedback.add(session, NewFeedback("counts", "msg_id", ("1",), 1.0), NOW + 9)
        for name, kind, ref in posts:
            await feedback.add(session, NewFeedback(name, kind, (ref,), 0.0, ignored=True), NOW + 9)
    await add(database, new("u", "3", started_at=NOW + 4))  # what was said of a session may be about this one
    assert await _about(database, "counts") == ("matched", "1")
    assert await _about(database, "muted") == ("ignored", "1")
    assert await _about(database, "alone") == ("ignored", "2")
    async with database.write() as session:
        pks = (await session.scalars(select(CallRow.id))).all()
        assert [[one.reward for one in said] for said in (await feedback_views.about_calls(session, pks)).values()] == [
            [1.0]
        ]
        assert [one.call.msg_id for one in await training_answers.judged_answers(session, 0, 9)] == ["1"]
        assert (await erasure.erase(session, "task_id", "t", NOW + 60)).rows["feedback"] == 2


async def test_feedback_on_an_answer_that_was_replaced_is_not_about_the_one_in_its_place(database: Database) -> None:
    await add(database, new("t", "1"))
    await add(database, new("t", "2", answer=saying("else"), started_at=NOW + 5, replaces=Stored("1", NOW)))
    await _said(database, "1", "msg_id", NOW + 6)
    assert await _about(database, "1") == ("late", "2")
    async with database.read() as session:
        assert await training_answers.judged_answers(session, 0, 10) == []

    await add(database, new("t", "3", answer=saying("more"), started_at=NOW + 9, replaces=Stored("2", NOW + 5)))
    assert await calls(database, "t") == [(0, "3")], "nobody had named the second"


async def test_a_retry_in_the_same_batch_replaces_no_answer_that_feedback_waited_for(database: Database) -> None:
    await _said(database, "1", "msg_id", NOW)
    await add(database, new("t", "1"), new("t", "2", started_at=NOW + 5, replaces=Stored("1", NOW)))
    assert await calls(database, "t") == [(0, "1"), (1, "2")]
    assert await _about(database, "1") == ("matched", "1")


def asking(prefixes: Prefixes, *messages: str) -> NewRequest:
    text = to_json({"messages": [{"role": "user", "content": words} for words in messages]})
    found = split(text, "messages")
    assert found is not None
    return prefixes.stored_form(text, Messages(b"", found))


async def test_what_was_said_of_attempts_in_a_batch_is_said_of_their_task(database: Database) -> None:
    async with database.write() as session:
        await tasks.add_mark(session, tasks.NewMark("m", None, "1", ["liked"], {}, 60.0), NOW)
    tries = [
        new("t", "1", new_task=True, decision=TAKEN, labels=frozenset({"math"}), metadata={"a": 1}),
        new("t", "2", started_at=NOW + 5, replaces=Stored("1", NOW), metadata={"a": 2}),
    ]
    await add(database, *tries)
    assert await calls(database, "t") == [(0, "2")]
    row = await task(database, "t")
    assert (row.labels, row.meta) == (["drawn", "liked", "math"], {"why": "luck", "a": 2})
    assert (row.selected, row.decided) == (True, False)


async def test_retries_in_a_batch_leave_conversations_as_they_are(database: Database) -> None:
    """Those of other tasks, and their own: what is said next adds to what was said before."""
    prefixes = Prefixes(100)

    def said(task_id: str, turns: int, msg_id: str, **fields: Any) -> NewCall:
        request = asking(prefixes, *(f"{task_id} {turn}" for turn in range(turns)))
        return new(task_id, msg_id, request=request, **fields)

    batch = [
        said("y", 1, "y0"),
        said("t", 1, "1"),
        said("y", 2, "y1"),
        said("t", 1, "2", started_at=NOW + 5, replaces=Stored("1", NOW)),
        said("y", 3, "y2"),
        said("t", 2, "3"),
    ]
    prefixes.stored((await add(database, *batch)).segments)
    async with database.read() as session:
        rows = (await session.scalars(select(CallRow).order_by(CallRow.task_id, CallRow.position))).all()
        requests = await segments.stored(session, [(row.request, row.segment_id) for row in rows])
    added = [(row.task_id, row.msg_id, len(kept.bodies)) for row, kept in zip(rows, requests, strict=True)]
    assert added == [("t", "2", 1), ("t", "3", 2), ("y", "y0", 1), ("y", "y1", 2), ("y", "y2", 3)]
    assert [len(kept.read()["messages"]) for kept in requests] == [1, 2, 1, 2, 3]
    assert await segments_kept.unneeded(database) == (0, 0)


async def test_a_retry_leaves_no_request_that_only_its_attempt_had(database: Database) -> None:
    one, two, three = (asking(Prefixes(1), words) for words in ("one", "two", "three"))
    await add(
        database,
        new("t", "1", request=one),
        new("t", "2", request=two, started_at=NOW + 5, replaces=Stored("1", NOW)),
    )
    await add(database, new("t", "3", request=three, started_at=NOW + 9, replaces=Stored("2", NOW + 5)))
    assert (await segments_kept.count(database), await segments_kept.unneeded(database)) == (1, (0, 0))


@pytest.mark.parametrize("stored", [False, True], ids=["in the batch", "stored"])
async def test_retries_are_stored_together(database: Database, asked: list[str], stored: bool) -> None:
    async def statements(count: int, name: str) -> int:
        tries = [new(f"{name}{each}", f"{name}a{each}") for each in range(count)]
        again = [
            new(f"{name}{each}", f"{name}b{each}", started_at=NOW + 5, replaces=Stored(f"{name}a{each}", NOW))
            for each in range(count)
        ]
        if stored:
            await add(database, *tries)
        del asked[:]
        if stored:
            await add(database, *again)
        else:
            await add(database, *(one for both in zip(tries, again, strict=True) for one in both))
        assert await calls(database, f"{name}{count - 1}") == [(0, f"{name}b{count - 1}")]
        return len(asked)

    few, many = await statements(2, "x"), await statements(12, "y")
    assert many - few <= (10 if stored else 0), "a stored attempt is looked up, and no more"


async def test_feedback_that_waited_is_about_the_answer_that_had_been_seen(database: Database) -> None:
    """Two answers of a session in one batch: what was said between them is about the first."""
    await _said(database, "s", "session_id", NOW + 5)
    await _said(database, "m2", "msg_id", NOW + 30)
    await _said(database, "nothing", "task_id", NOW + 30)
    await add(
        database,
        new("x", "m0", session_id="r"),
        new("t", "m1", started_at=NOW, latency=1.0),
        new("u", "m2", started_at=NOW + 10, latency=1.0),
        new("x", "m3", session_id="r"),
        now=NOW + 40,
    )
    assert await _about(database, "s") == ("matched", "m1")
    assert await _about(database, "m2") == ("matched", "m2")
    assert await _about(database, "nothing") == ("waiting", None)
    assert await calls(database, "x") == [(0, "m0"), (1, "m3")]


async def test_feedback_goes_on_to_a_later_answer_that_had_been_seen(database: Database) -> None:
    await add(database, new("t", "m1"))
    await _said(database, "t", "task_id", NOW + 20)
    assert await _about(database, "t") == ("matched", "m1")
    await add(database, new("t", "m2", started_at=NOW + 10), new("t", "m3", started_at=NOW + 30), now=NOW + 40)
    assert await _about(database, "t") == ("matched", "m2")


async def test_more_calls_than_a_statement_takes_names(database: Database) -> None:
    await _said(database, "m1199", "msg_id", NOW)
    await add(database, *(new(f"t{number}", f"m{number}") for number in range(1200)))
    await add(database, *(new(f"t{number}", f"n{number}") for number in range(1200)))
    assert await _about(database, "m1199") == ("matched", "m1199")
    assert await calls(database, "t0") == [(0, "m0"), (1, "n0")]
    assert await calls(database, "t1199") == [(0, "m1199"), (1, "n1199")]
