"""From exchanges to rows: what is stored, what is decided on the way, and what a failing store leaves behind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from captured_chats import MAX_BODY, assistant, completion, exchange, tool, tool_call, user
from prometheus_client import CollectorRegistry
from sqlalchemy import event, select

from slipstream.capture.conversations import Conversations
from slipstream.capture.recorder import Recorder
from slipstream.capture.retries import Retries
from slipstream.metrics import Metrics
from slipstream.proxy.tap import Exchange
from slipstream.redaction import Redactor, RedactRule
from slipstream.selection import Decision
from slipstream.store import pictures
from slipstream.store.database import Database
from slipstream.store.recording import Added
from slipstream.store.tables import CallRow, TaskRow
from slipstream.trajectory import Task

JSON = [(b"content-type", b"application/json")]


class Recording:
    """A Recorder over a store of its own, with what it told and asked."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.metrics = Metrics(CollectorRegistry())
        self.stored: list[Added] = []
        self.asked: list[Task] = []
        self.decision = Decision(False, "not_sampled")
        self.recorder = Recorder(
            database, Conversations(100), Retries(100), Redactor([RedactRule(name="api_key")]), self.metrics,
            decide=self._decide, rate=1.0, limit_bytes=2**20, max_body=MAX_BODY, clock=lambda: 1_000_000.0,
            stored=self.stored.append, wake=lambda: None,
        )  # fmt: skip

    def _decide(self, task: Task) -> Decision:
        self.asked.append(task)
        return self.decision

    async def record(self, *exchanges: Exchange) -> None:
        for went_by in exchanges:
            self.recorder.record(went_by)
        while await self.recorder.step():
            pass

    async def tasks(self) -> list[TaskRow]:
        async with self.database.read() as session:
            return list(await session.scalars(select(TaskRow).order_by(TaskRow.id)))

    async def calls(self) -> list[Any]:
        async with self.database.read() as session:
            ids = await session.scalars(select(CallRow.task_id).distinct().order_by(CallRow.task_id))
            found = await pictures.tasks(session, ids.all())
            return [call for task_id in sorted(found) for call in found[task_id].calls]

    def decided(self, selected: str, reason: str) -> float | None:
        labels = {"selected": selected, "reason": reason}
        return self.metrics.registry.get_sample_value("slipstream_selection_decisions_total", labels)


@pytest.fixture
async def recording(tmp_path: Path) -> AsyncIterator[Recording]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    yield Recording(database)
    await database.close()


def asks(text: str) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [user(text)]}


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
    assert recording.stored == [Added(undecided=False, rescore=False)]
    assert recording.decided("false", "not_sampled") == 2
    task = recording.asked[0]
    assert (task.marked, task.labels, task.metadata) == (True, frozenset({"math"}), {"reference": "42"})
    assert task.calls[0].request == asks("hi [redacted:api_key]")
    assert (task.task_id, task.session_id) in {(row.id, row.session_id) for row in await recording.tasks()}


async def test_a_task_that_is_not_complete_or_not_of_its_making_waits_for_the_planner(recording: Recording) -> None:
    called = assistant(None, tool_call("a", "look"))
    named = [(b"x-slipstream-task-id", b"theirs")]
    await recording.record(exchange(asks("look"), completion(called)), exchange(asks("hi"), request_headers=named))
    assert recording.asked == []
    assert recording.stored[-1].undecided
    goes_on = {"messages": [user("look"), called, tool("a", "found")]}
    await recording.record(exchange(goes_on, completion(assistant("done"))))
    assert recording.asked == []
    assert sorted((row.state, row.decided) for row in await recording.tasks()) == [("complete", False)] * 2


async def test_a_selected_task_is_left_to_be_planned_and_not_decided_twice(recording: Recording) -> None:
    recording.decision = Decision(True, "sampling")
    await recording.record(exchange(asks("hi")))
    [row] = await recording.tasks()
    assert (row.selected, row.reason, row.decided) == (True, "sampling", False)
    assert recording.stored == [Added(undecided=True, rescore=False)]
    assert recording.decided("true", "sampling") == 1


async def test_a_batch_that_the_store_did_not_take_is_stored_later_and_decided_once(recording: Recording) -> None:
    engine = recording.database._engine.sync_engine

    def refuse(*_: Any) -> None:
        raise OSError("disk full")

    event.listen(engine, "commit", refuse)
    recording.recorder.record(exchange(asks("hi")))
    recording.recorder.record(exchange(asks("ho")))
    with pytest.raises(OSError, match="disk full"):
        await recording.recorder.step()
    assert (recording.recorder.waiting, recording.decided("false", "not_sampled")) == (2, None)

    event.remove(engine, "commit", refuse)
    await recording.record()
    assert recording.recorder.waiting == 0
    assert len(await recording.tasks()) == len(await recording.calls()) == 2
    assert (len(recording.asked), recording.decided("false", "not_sampled")) == (2, 2)


async def test_calls_that_two_workers_told_of_in_the_wrong_order_are_one_conversation(recording: Recording) -> None:
    look_up = assistant(None, tool_call("c1", "look_up"))
    first = exchange(asks("hi"), answer=completion(look_up))
    second = exchange({"model": "gpt-4o", "messages": [user("hi"), look_up, tool("c1", "42")]})
    later = dataclasses.replace(second, started_at=first.started_at + first.duration + 0.001)
    await recording.record(later, first)

    assert len(await recording.tasks()) == 1
    assert [call.started_at for call in await recording.calls()] == [first.started_at, later.started_at]
