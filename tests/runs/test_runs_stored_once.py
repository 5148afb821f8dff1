"""Parts that the policy's calls share with other calls are stored once, and each request reads as it was made."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import Any

import pytest
import segments_kept
from captured_chats import assistant, tool, tool_call, user
from conversation_steps import MESSAGE, said_next
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loops import RunLoop
from replaying import finish, open_runs, sdk
from serving import until
from sqlalchemy import select, text
from stores import ON_BOTH_STORES, stored_rows

from slipstream.capture.prefixes import Prefixes
from slipstream.dialects.elements import split
from slipstream.rewards import Reward
from slipstream.runs.replay_conversations import ReplayConversations
from slipstream.store import replays, tasks
from slipstream.store.bodies import pack
from slipstream.store.database import Database
from slipstream.store.replay_calls import NewCall
from slipstream.store.states import RunState
from slipstream.store.tables.capture import TaskRow
from slipstream.trajectory import Run

NUMBERS = itertools.count()
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{number}", "description": "does it " * 9}} for number in range(9)
]


def agent(turns: int) -> list[dict[str, Any]]:
    """The requests of an agent that uses its tool in each step."""
    messages: list[Any] = [user("find it " * 30)]
    requests = []
    for turn in range(turns):
        requests.append({"messages": list(messages), "tools": TOOLS, "temperature": 0.5})
        messages += [assistant(None, tool_call(f"c{turn}", "tool_1", q=turn)), tool(f"c{turn}", f"result {turn} " * 40)]
    return requests


def sees_all(run: Run) -> Reward:
    """A calculator that tells how many messages and tools the requests of a run have."""
    requests = [call.request for call in run.calls]
    messages, tools = (sum(len(request[name]) for request in requests) for name in ("messages", "tools"))
    return Reward(0.5, {"messages": float(messages), "tools": float(tools)})


SEES_ALL = {"calculators": [{"python": "test_runs_stored_once:sees_all"}]}


@pytest.mark.slow
@ON_BOTH_STORES
async def test_the_runs_of_a_task_take_the_room_of_what_each_adds(run_loop: RunLoop, store_url: str) -> None:
    turns = 6
    async with run_loop(rewards=SEES_ALL) as loop:
        asked: dict[str, Any] = {}
        for task_id in ("t", "another"):
            for run in (await open_runs(loop, task_id, 2))["runs"]:
                async with sdk(loop, run) as client:
                    for request in agent(turns):
                        answer = await client.chat.completions.create(model="gpt-4o", **request)
                        asked[answer.id] = loop.explorer.chats[-1]
                await finish(loop, task_id, run["run_id"])
        await until(lambda: loop.ready(4 * turns))
        assert {request for (request,) in await stored_rows(store_url, "SELECT request FROM run_calls")} == {b""}
        # both runs of a task say the same here, and tasks share nothing
        assert await stored_rows(store_url, "SELECT count(*) FROM segments") == [(2 * turns,)]
        begun = await stored_rows(store_url, "SELECT count(*) FROM segments WHERE parent_id IS NULL")
        assert begun == [(2,)], "a conversation goes on from its first message"
        for msg_id, request in asked.items():
            assert (await loop.client.get(f"/calls/{msg_id}")).json()["request"] == request
        task = await loop.task("t")
        assert task is not None
        all_messages = sum(len(request["messages"]) for request in agent(turns))
        seen = {"python.messages": float(all_messages), "python.tools": 9.0 * turns}
        assert [run["breakdown"].items() >= seen.items() for run in task["groups"][0]["runs"]] == [True, True]

        assert (await loop.client.delete("/data", params={"task_id": "t"})).status_code == 200
        assert await stored_rows(store_url, "SELECT count(*) FROM segments") == [(turns,)]
        left = [msg_id for (msg_id,) in await stored_rows(store_url, "SELECT msg_id FROM run_calls")]
        assert len(left) == 2 * turns
        for msg_id in left:
            assert (await loop.client.get(f"/calls/{msg_id}")).json()["request"] == asked[msg_id]
        assert (await loop.client.delete("/data", params={"task_id": "another"})).status_code == 200
        assert await stored_rows(store_url, "SELECT count(*) FROM segments") == [(0,)]


@pytest.mark.slow
@ON_BOTH_STORES
async def test_shadow_runs_hold_what_their_call_has_not(run_loop: RunLoop, store_url: str) -> None:
    async with run_loop(runs={"repeat_time": 3}, rewards=SEES_ALL) as loop:
        [*_, request] = agent(6)
        answer = await loop.chat(
            request["messages"], {"x-slipstream-task-id": "t"}, tools=TOOLS, temperature=0.5, user="u", stream=False
        )
        assert answer["id"]
        await until(lambda: loop.ready(3))
        runs = await stored_rows(store_url, "SELECT msg_id, length(request) FROM runs")
        assert all(size < 200 for _, size in runs), "neither messages nor tools"
        sent = {**request, "model": "/models/policy", "n": 1, "stream": False}
        assert loop.explorer.chats == [sent] * 3
        for msg_id, _ in runs:
            assert (await loop.client.get(f"/calls/{msg_id}")).json()["request"] == sent
        task = await loop.task("t")
        assert task is not None
        seen = {"python.messages": 11.0, "python.tools": 9.0}
        assert [run["breakdown"].items() >= seen.items() for run in task["groups"][0]["runs"]] == [True] * 3


async def _opened(database: Database, task_id: str, runs: int) -> list[int]:
    """The rows of a group's runs, in order."""
    async with database.write() as session:
        await replays.note_task(session, task_id, None, [], {}, 1.0)
        group = await replays.open_runs(session, task_id, runs, 1.0, state=RunState.OPEN, by_client=True, due_at=9.0)
        found = [await replays.find(session, task_id, run_id) for run_id in group.run_ids]
    return [run.pk for run in found if run is not None]


async def _add(conversations: ReplayConversations, task_id: str, pk: int, sent: bytes) -> str:
    msg_id = f"m{next(NUMBERS)}"
    call = NewCall(msg_id, 1, sent, split(sent, "messages"), pack({}), 0.1, 0, float(next(NUMBERS)))
    async with conversations.adding(task_id, pk, call, 9.0, 1.0) as (_, kept):
        assert kept
    return msg_id


def _body(messages: list[Any], **parameters: Any) -> bytes:
    return json.dumps({"model": "p", "messages": messages, **parameters}).encode()


@ON_BOTH_STORES
async def test_a_call_that_its_agent_left_while_it_was_made_ready_spoils_no_other(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread still uses the prefixes. Until that thread has ended, no other call may use them."""
    conversations = ReplayConversations(database, 100)
    [pk] = await _opened(database, "t", 1)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    stored_form = Prefixes.stored_form

    def slow(*about: Any) -> Any:
        begun.set()
        assert may_end.wait(30)
        try:
            return stored_form(*about)
        finally:
            ended.set()

    monkeypatch.setattr(Prefixes, "stored_form", slow)
    long = _body([user("x" * 100_000)])
    left = asyncio.create_task(_add(conversations, "t", pk, long))
    await asyncio.to_thread(begun.wait, 30)
    left.cancel()
    monkeypatch.setattr(Prefixes, "stored_form", stored_form)
    after = asyncio.create_task(_add(conversations, "t", pk, long))
    assert not (await asyncio.wait([left, after], timeout=0.2))[0], "both wait for the thread"
    may_end.set()
    msg_id = await after
    assert ended.is_set()
    with pytest.raises(asyncio.CancelledError):
        await left
    assert await segments_kept.replayed_texts(database) == {msg_id: long}
    assert await segments_kept.unneeded(database) == (0, 0)


@ON_BOTH_STORES
async def test_a_call_of_a_run_that_has_ended_leaves_nothing(database: Database) -> None:
    conversations = ReplayConversations(database, 100)
    [pk] = await _opened(database, "t", 1)
    first, second, third = (_body(request["messages"]) for request in agent(3))
    kept = await _add(conversations, "t", pk, first)
    async with database.write() as session:
        await replays.fail(session, [pk], "it was away", 2.0)
    call = NewCall("late", 1, second, split(second, "messages"), pack({}), 0.1, 0, 3.0)
    async with conversations.adding("t", pk, call, 9.0, 1.0) as (_, taken):
        assert not taken
    [other] = await _opened(database, "t", 1)
    later = await _add(conversations, "t", other, third)
    assert await segments_kept.replayed_texts(database) == {kept: first, later: third}
    assert (await segments_kept.count(database), await segments_kept.unneeded(database)) == (2, (0, 0))


# Arbitrary runs.

_STYLE = st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}])
_STEP = st.tuples(
    st.integers(0, 1),  # the task
    st.integers(0, 1),  # its run
    st.sampled_from(["on", "on", "on", "again", "branch", "edit"]),
    st.lists(MESSAGE, min_size=1, max_size=2),
    st.integers(0, 5),
    st.sampled_from([{}, {}, {"temperature": 1}, {"tools": TOOLS[:1]}]),
    st.sampled_from(["go on", "go on", "go on", "go on", "delete", "restart", "many"]),
)


async def _whatever_runs_ask(database: Database, steps: list[Any], style: dict[str, Any]) -> None:
    example = next(NUMBERS)
    names = [f"{example}-{number}" for number in range(2)]
    conversations = ReplayConversations(database, 100)
    pks = [await _opened(database, name, 2) for name in names]
    messages: list[list[Any]] = [[], [], [], []]
    sent: list[dict[str, bytes]] = [{}, {}]
    for task, run, way, new, at, parameters, after in steps:
        said = messages[2 * task + run] = said_next(messages[2 * task + run], way, new, at)
        body = json.dumps({"model": "p", "messages": said, **parameters}, **style).encode("utf-8", "surrogatepass")
        both = [(task, run), (task, 1 - run)] if after == "many" else [(task, run)]
        adding = [_add(conversations, names[which], pks[which][number], body) for which, number in both]
        for msg_id in await asyncio.gather(*adding):
            sent[task][msg_id] = body
        if after == "restart":
            conversations.registered()
        if after == "delete":
            async with database.write() as session:
                assert await tasks.delete_tasks(session, [names[task]]) == 1
            sent[task].clear()
            pks[task] = await _opened(database, names[task], 2)
    assert await segments_kept.replayed_texts(database) == sent[0] | sent[1]
    assert await segments_kept.unneeded(database) == (0, 0)
    async with database.write() as session:
        await tasks.delete_tasks(session, list(await session.scalars(select(TaskRow.id))))
        assert await session.scalar(text("SELECT count(*) FROM run_calls")) == 0
    assert await segments_kept.count(database) == 0


@pytest.mark.parametrize(
    ("store_url", "examples"),
    [
        ("sqlite", 15),
        pytest.param("sqlite", 40, marks=pytest.mark.slow),
        pytest.param("postgresql", 40, marks=pytest.mark.slow),
    ],
    indirect=["store_url"],
)
def test_whatever_runs_ask_reads_as_it_was_asked(store_url: str, examples: int) -> None:
    with asyncio.Runner() as runner:
        database = Database(store_url)
        runner.run(database.open())

        @settings(
            max_examples=examples,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.lists(_STEP, max_size=20), _STYLE)
        def check(steps: list[Any], style: dict[str, Any]) -> None:
            runner.run(_whatever_runs_ask(database, steps, style))

        check()
        runner.run(database.close())
