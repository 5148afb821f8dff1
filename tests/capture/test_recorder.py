"""From exchanges to rows: what is stored, what is decided on the way, and what a failing store leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from captured_chats import MAX_BODY, assistant, completion, exchange, tool, tool_call, user
from contexts import context
from prometheus_client import CollectorRegistry
from sqlalchemy import event, select, update
from sqlalchemy.exc import OperationalError
from stores import deaf

from slipstream.capture.backlog import Backlog
from slipstream.capture.call_spans import CallSpans
from slipstream.capture.conversations import Conversations
from slipstream.capture.recorder import Recorder
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.capture.retries import Retries
from slipstream.capture.room import StoreRoom
from slipstream.capture.throttle import RecorderThrottle
from slipstream.capture.writer import CaptureWriter
from slipstream.metrics import Metrics
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactRule
from slipstream.selection import Decision
from slipstream.stages.context import Stage
from slipstream.store import captured, read_models
from slipstream.store.database import Database
from slipstream.store.tables.capture import CallRow, CapturedRow, TaskRow
from slipstream.trajectory import Task

JSON = [(b"content-type", b"application/json")]


KILLED_AT_A_COMMIT = """
import asyncio, os, signal, sys
from pathlib import Path
from captured_chats import exchange, user
from slipstream.store.database import Database
from sqlalchemy import event
from test_recorder import Recording, asks

async def main(url, commits):
    database = Database(url)
    await database.open()
    recording = Recording(database)

    @event.listens_for(database._engine.sync_engine, "commit")
    def count(connection):
        nonlocal commits
        if connection.get_execution_options().get("slipstream_writes"):
            commits -= 1
            if not commits:
                os.kill(os.getpid(), signal.SIGKILL)

    for number in range(3):
        await recording.record(exchange(asks(f"call {number}")))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Recording:
    """An CaptureWriter and a Recorder over a store of their own, with what they told and asked."""

    def __init__(self, database: Database, rate: float = 1.0) -> None:
        self.database = database
        self.metrics = Metrics(CollectorRegistry())
        self.asked: list[Task] = []
        self.decision = Decision(False, "not_sampled")
        self.backlog = Backlog(2**20)
        made, self.stages = context(
            database, self.metrics, lambda: 1_000_000.0, capture={"queue_bytes": 2**20, "rate": rate}
        )
        redactor = ExchangeRedactor(Redactor([RedactRule(name="api_key")]), MAX_BODY, made.parsing)
        room, spans = StoreRoom(database, self.metrics, 2**40), CallSpans(made, Redactor([]))
        self.writer = CaptureWriter(made, self.backlog, redactor, room, spans)
        self.recorder = Recorder(
            made, self.backlog, RecorderThrottle(lambda: False, lambda: None), Conversations(100), Retries(100),
            self._decide,
        )  # fmt: skip

    def _decide(self, task: Task) -> Decision:
        self.asked.append(task)
        return self.decision

    async def record(self, *exchanges: Exchange) -> None:
        await self.take(*exchanges)
        while await self.recorder.step():
            pass

    async def take(self, *exchanges: Exchange) -> None:
        """Not as far as calls."""
        for went_by in exchanges:
            self.writer.record(went_by)
        while await self.writer.step():
            pass

    async def tasks(self) -> list[TaskRow]:
        async with self.database.read() as session:
            return list(await session.scalars(select(TaskRow).order_by(TaskRow.id)))

    async def calls(self) -> list[Any]:
        async with self.database.read() as session:
            ids = await session.scalars(select(CallRow.task_id).distinct().order_by(CallRow.task_id))
            found = await read_models.tasks(session, ids.all())
            return [call for task_id in sorted(found) for call in found[task_id].calls]

    async def kept(self) -> list[CapturedRow]:
        async with self.database.read() as session:
            return list(await session.scalars(select(CapturedRow)))

    def not_captured(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value("slipstream_calls_not_captured_total", {"reason": reason})

    def decided(self, selected: str, reason: str) -> float | None:
        labels = {"selected": selected, "reason": reason}
        return self.metrics.registry.get_sample_value("slipstream_selection_decisions_total", labels)


@pytest.fixture
async def recording(tmp_path: Path) -> AsyncIterator[Recording]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    yield Recording(database)
    await database.close()


@contextmanager
def full_disk(database: Database) -> Iterator[None]:
    """Whoever writes is refused."""

    def refuse(*_: Any) -> None:
        raise OSError("disk full")

    engine = database._engine.sync_engine
    event.listen(engine, "commit", refuse)
    yield
    event.remove(engine, "commit", refuse)


def asks(text: str) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [user(text)]}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text",
    ["hello", "Grüße, 你好 😀", "half a pair \ud800", "the key is sk-abcdefghijklmnop1234", "</p> \u2028 \x1b[0m"],
)
@pytest.mark.parametrize("written", ["compact", "escaped", "utf-16"])
async def test_a_body_is_stored_as_it_was_less_its_secrets(recording: Recording, text: str, written: str) -> None:
    request = asks(text) | {"seed": 2**70, "temperature": 1e-9, "odd": {"": [None, True]}}
    body = json.dumps(request, ensure_ascii=written != "compact")
    encoded = body.encode("utf-16" if written == "utf-16" else "utf-8", "surrogatepass")
    answer = completion(assistant(text))
    await recording.record(exchange(request_body=encoded, answer=answer))

    [call] = await recording.calls()
    clean = text.replace("sk-abcdefghijklmnop1234", "[redacted:api_key]")
    assert call.request == request | {"messages": [user(clean)]}
    assert call.answer == completion(assistant(clean))


async def test_a_task_of_one_call_is_decided_where_it_is_recorded(recording: Recording) -> None:
    headers = [(b"x-slipstream-mark", b"math"), (b"x-slipstream-metadata", b'{"reference": "42"}')]
    await recording.record(exchange(asks("hi sk-abcdefghijklmnop1234"), request_headers=headers), exchange(asks("ho")))

    assert [row.decided for row in await recording.tasks()] == [True, True]
    assert not {Stage.PLANNER, Stage.SCORER}.intersection(recording.stages.woken)
    assert recording.decided("false", "not_sampled") == 2
    task = recording.asked[0]
    assert (task.marked, task.labels, task.metadata) == (True, frozenset({"math"}), {"reference": "42"})
    assert task.calls[0].request == asks("hi [redacted:api_key]")
    assert (task.task_id, task.session_id) in {(row.id, row.session_id) for row in await recording.tasks()}


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_retry_is_stored_in_the_place_of_the_attempt_before(recording: Recording, at_once: bool) -> None:
    attempts = [
        exchange(
            asks("hi"),
            completion(assistant(f"answer {retry}"), id=f"a{retry}"),
            request_headers=[(b"x-stainless-retry-count", b"%d" % retry)],
            started_at=1000.0 + retry,
        )
        for retry in range(3)
    ]
    for some in [attempts] if at_once else [[each] for each in attempts]:
        await recording.record(*some)
    [task] = await recording.tasks()
    [call] = await recording.calls()
    assert (call.msg_id, call.position, call.started_at) == ("a2", 0, 1002.0)
    assert call.answer == completion(assistant("answer 2"), id="a2")
    assert not task.decided, "with what came since"


async def test_a_task_that_is_not_complete_or_not_of_its_making_waits_for_the_planner(recording: Recording) -> None:
    called = assistant(None, tool_call("a", "look"))
    named = [(b"x-slipstream-task-id", b"theirs")]
    await recording.record(exchange(asks("look"), completion(called)), exchange(asks("hi"), request_headers=named))
    assert recording.asked == []
    assert Stage.PLANNER in recording.stages.woken
    goes_on = {"messages": [user("look"), called, tool("a", "found")]}
    await recording.record(exchange(goes_on, completion(assistant("done"))))
    assert recording.asked == []
    assert sorted((row.state, row.decided) for row in await recording.tasks()) == [("complete", False)] * 2


async def test_a_selected_task_is_left_to_be_planned_and_not_decided_twice(recording: Recording) -> None:
    recording.decision = Decision(True, "sampling")
    await recording.record(exchange(asks("hi")))
    [row] = await recording.tasks()
    assert (row.selected, row.reason, row.decided) == (True, "sampling", False)
    assert Stage.PLANNER in recording.stages.woken
    assert Stage.SCORER not in recording.stages.woken
    assert recording.decided("true", "sampling") == 1


async def test_a_batch_that_the_store_did_not_take_is_stored_later_and_decided_once(recording: Recording) -> None:
    with full_disk(recording.database):
        recording.writer.record(exchange(asks("hi")))
        recording.writer.record(exchange(asks("ho")))
        with pytest.raises(OSError, match="disk full"):
            await recording.writer.step()
        assert (recording.writer.waiting, recording.backlog.exchanges) == (2, 0)
    await recording.writer.step()
    assert (recording.writer.waiting, recording.backlog.exchanges) == (0, 2)

    with full_disk(recording.database), pytest.raises(OSError, match="disk full"):
        await recording.recorder.step()
    assert (recording.backlog.exchanges, recording.decided("false", "not_sampled")) == (2, None)
    await recording.record()
    assert (recording.backlog.exchanges, recording.backlog.size) == (0, 0)
    assert len(await recording.tasks()) == len(await recording.calls()) == 2
    assert (len(recording.asked), recording.decided("false", "not_sampled")) == (2, 2)


async def test_a_batch_that_was_stored_though_nobody_heard_of_it_is_stored_once(recording: Recording) -> None:
    with deaf(recording.database):
        recording.writer.record(exchange(asks("hi")))
        with pytest.raises(OperationalError):
            await recording.writer.step()
    await recording.writer.step()
    assert recording.backlog.exchanges == 1
    with deaf(recording.database), pytest.raises(OperationalError):
        await recording.recorder.step()
    await recording.record(exchange(asks("ho")))
    assert len(await recording.calls()) == 2
    assert recording.decided("false", "not_sampled") == 2
    assert recording.backlog.exchanges == 0


async def test_what_may_be_written_again_is_not_read_before(recording: Recording) -> None:
    await recording.take(exchange(asks("hi")))
    with deaf(recording.database):
        recording.writer.record(exchange(asks("ho")))
        with pytest.raises(OperationalError):
            await recording.writer.step()
    await recording.recorder.step()
    await recording.backlog.recount(recording.database)
    assert recording.backlog.exchanges == 0
    await recording.record()
    texts = [call.request["messages"][0]["content"] for call in await recording.calls()]
    assert sorted(texts) == ["hi", "ho"]
    assert await recording.kept() == []


async def test_a_row_that_cannot_be_read_is_counted_and_keeps_nobody_waiting(recording: Recording) -> None:
    async with recording.database.write() as session:
        await captured.add(session, 0, [captured.CaptureBatch(1, 3, b"of another release")], again=False)
    await recording.backlog.open(recording.database, 0)
    await recording.record(exchange(asks("hi")))
    assert len(await recording.calls()) == 1
    assert recording.not_captured("unreadable") == 3
    assert await recording.kept() == []


async def test_what_a_process_left_is_stored_by_the_next(recording: Recording) -> None:
    await recording.take(exchange(asks("hi")), exchange(asks("ho")))
    after = Recording(recording.database)
    await after.backlog.open(recording.database, 0)
    assert after.backlog.exchanges == 2
    await after.record(exchange(asks("hey")))
    texts = [call.request["messages"][0]["content"] for call in await after.calls()]
    assert sorted(texts) == ["hey", "hi", "ho"]


async def test_what_another_sidecar_left_is_counted_and_read(recording: Recording) -> None:
    await recording.take(exchange(asks("hi")))
    async with recording.database.write() as session:
        await session.execute(update(CapturedRow).values(id=captured.before_first(7) + 1))
    successor = Recording(recording.database)
    assert not await successor.recorder.step()
    successor.backlog.adopted()
    await successor.recorder.step()
    assert len(await successor.calls()) == 1
    assert (successor.backlog.exchanges, successor.backlog.size) == (0, 0)


async def test_a_backlog_that_is_full_takes_no_more_until_some_of_it_was_read(recording: Recording) -> None:
    long = exchange(asks("x" * 600_000))
    await recording.take(long)
    assert not recording.writer.full()
    await recording.take(long)
    assert recording.writer.full()
    await recording.record()
    assert not recording.writer.full()


async def test_what_is_read_at_once_is_bounded(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.capture.writer._ROW", 1)
    monkeypatch.setattr("slipstream.capture.recorder._BATCH_BYTES", 500_000)
    long = exchange(asks("x" * 200_000))
    await recording.take(*[long] * 5, exchange(asks("x" * 700_000)), long)
    left = [recording.backlog.exchanges]
    while await recording.recorder.step():
        left.append(recording.backlog.exchanges)
    assert left == [7, 5, 3, 2, 1]
    assert len(await recording.calls()) == 7


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("commits", "kept"), [(1, 0), (2, 1), (3, 1), (5, 2), (6, 2), (9, 3)])
async def test_a_kill_loses_nothing_that_was_written_and_stores_nothing_twice(
    tmp_path: Path, commits: int, kept: int
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/killed.db"
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED_AT_A_COMMIT, url, str(commits)), env={**os.environ, "PYTHONPATH": path}
    )
    assert await killed.wait() == -signal.SIGKILL
    database = Database(url)
    await database.open()
    recording = Recording(database)
    await recording.backlog.open(database, 0)
    await recording.record()
    texts = sorted(call.request["messages"][0]["content"] for call in await recording.calls())
    assert texts == [f"call {number}" for number in range(kept)]
    await database.close()
