"""Each part of a conversation is stored once, and each request reads as it was sent."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
import segments_kept
from captured_chats import MAX_BODY, assistant, completion, exchange, tool, tool_call, user
from contexts import parse_memory
from conversation_steps import MESSAGE, said_next
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select, text
from stores import ON_BOTH_STORES, deaf
from test_recorder import Recording

from slipstream.capture.completion import read_call
from slipstream.capture.histories import Histories, Items, Newest
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.dialects.body import NotCaptured
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactRule
from slipstream.store import erasure, tasks
from slipstream.store.database import Database
from slipstream.store.tables.capture import CallRow
from slipstream.store.tables.segments import SegmentRow

NUMBERS = itertools.count()
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{number}", "description": "does it " * 9}} for number in range(9)
]
REDACTOR = ExchangeRedactor(Redactor([RedactRule(name="api_key")]), MAX_BODY, parse_memory())


def asked(body: Any, **headers: str) -> tuple[str, Exchange]:
    """A captured exchange, and the id of its answer."""
    msg_id = f"m{next(NUMBERS)}"
    given = [(f"x-slipstream-{name.replace('_', '-')}".encode(), value.encode()) for name, value in headers.items()]
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = completion(assistant("yes"), id=msg_id)
    return msg_id, exchange(answer=answer, request_body=sent, request_headers=given)


def agent(turns: int, said: str = "step", **parameters: Any) -> list[dict[str, Any]]:
    """The requests of an agent that uses its tool in each step."""
    messages: list[Any] = [{"role": "system", "content": "be brief " * 30}, user(f"{said} 0")]
    requests = []
    for turn in range(turns):
        requests.append({"messages": list(messages), "model": "gpt-4o", "tools": TOOLS, **parameters})
        messages += [
            assistant(None, tool_call(f"c{turn}", "search", q=turn)),
            tool(f"c{turn}", random.Random(turn).randbytes(400).hex()),
        ]
    return requests


async def size(database: Database) -> tuple[int, int]:
    """Bytes of requests: in calls and in segments."""
    async with database.read() as session:
        own = await session.scalar(select(func.sum(func.length(CallRow.request)))) or 0
        return int(own), int(await session.scalar(select(func.sum(func.length(SegmentRow.body)))) or 0)


@ON_BOTH_STORES
async def test_a_conversation_takes_the_room_of_its_last_request(database: Database) -> None:
    recording = Recording(database)
    first, *requests = agent(20)
    await recording.record(asked(first)[1])
    own, once = await size(database)
    assert (own > 0, once) == (True, 0), "what nothing goes on from is stored by itself"
    for body in requests:
        await recording.record(asked(body)[1])
    assert (await size(database))[0] == own, "the tools are those of the first call"
    once = (await size(database))[1]
    [alone] = [asked(requests[-1])[1]]
    await recording.record(alone)
    assert await size(database) == (own, once), "the same again needs nothing"
    other = Recording(database)
    await other.record(asked(requests[-1])[1])
    assert once < 1.6 * ((await size(database))[1] - once), "parts are compressed less well than one text"
    assert len(await segments_kept.request_texts(database)) == 22


@ON_BOTH_STORES
async def test_a_batch_goes_on_from_what_is_in_it(database: Database) -> None:
    recording = Recording(database)
    sent = [asked(body) for body in agent(5)[1:]]
    await recording.record(*(went_by for _, went_by in sent))
    assert await segments_kept.request_texts(database) == {msg_id: one.request_body for msg_id, one in sent}
    assert (await segments_kept.count(database), (await size(database))[0]) == (4, 0)


@ON_BOTH_STORES
async def test_other_parameters_are_stored_beside_the_messages(database: Database) -> None:
    recording = Recording(database)
    first, second = agent(3)[1:]
    sent = [asked(first), asked({**first, "temperature": 0.7}), asked({**second, "temperature": 0.7}), asked(second)]
    for _, went_by in sent:
        await recording.record(went_by)
    assert await segments_kept.request_texts(database) == {msg_id: one.request_body for msg_id, one in sent}
    assert await segments_kept.count(database) == 2


_SAID_IN = {
    "messages": {
        "type": "message", "role": "assistant", "model": "prod", "stop_reason": "end_turn", "stop_sequence": None,
        "content": [{"type": "text", "text": "yes"}], "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "responses": {
        "object": "response", "status": "completed", "model": "prod", "error": None, "incomplete_details": None,
        "output": [
            {
                "type": "message", "id": "i", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "yes", "annotations": []}],
            }
        ],
    },
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dialect", ["messages", "responses"])
@ON_BOTH_STORES
async def test_a_conversation_in_another_dialect_is_stored_once_in_both_forms(database: Database, dialect: str) -> None:
    recording = Recording(database)
    field = "input" if dialect == "responses" else "messages"
    said: list[Any] = [{"role": "user", "content": "hello"}]
    sent: dict[str | None, bytes] = {}
    for turn in range(6):
        body = {"model": "prod", "max_tokens": 9, field: said, "tools": [], "metadata": {"user_id": "somebody"}}
        sent[f"{dialect}-{turn}"] = json.dumps(body).encode()
        answer = json.dumps({"id": f"{dialect}-{turn}", **_SAID_IN[dialect]}).encode()
        await recording.record(
            exchange(path=f"/v1/{dialect}", request_body=sent[f"{dialect}-{turn}"], response_body=answer)
        )
        said = [*said, {"role": "assistant", "content": "yes"}, {"role": "user", "content": f"and {turn}?"}]
    assert await segments_kept.original_texts(database) == sent
    asked = await segments_kept.request_texts(database)
    assert [len(json.loads(asked[name])["messages"]) for name in sent] == [1, 3, 5, 7, 9, 11]
    assert (await segments_kept.count(database), await segments_kept.unneeded(database)) == (10, (0, 0))
    async with database.read() as session:
        rows = await session.execute(select(CallRow.request, CallRow.original_request))
        assert [(len(own), len(original)) for own, original in rows][2:] == [(0, 0)] * 4
    async with database.write() as session:
        await tasks.delete_tasks(session, list(await session.scalars(select(CallRow.task_id))))
    assert await segments_kept.count(database) == 0


@ON_BOTH_STORES
async def test_a_task_may_go_while_the_conversation_goes_on(database: Database) -> None:
    recording = Recording(database)
    sent = [asked(body, session_id="s", task_id=f"t{turn}") for turn, body in enumerate(agent(4)[1:])]
    for _, went_by in sent:
        await recording.record(went_by)
    for turn in (0, 2, 1):
        async with database.write() as session:
            assert await tasks.delete_tasks(session, [f"t{turn}"]) == 1
        del sent[[f"t{turn}" in str(one.request_headers) for _, one in sent].index(True)]
        assert await segments_kept.request_texts(database) == {msg_id: one.request_body for msg_id, one in sent}
        assert await segments_kept.unneeded(database) == (0, 0)
    assert await segments_kept.count(database) == 0


@ON_BOTH_STORES
async def test_a_conversation_that_was_deleted_goes_on(database: Database) -> None:
    """Its next request was read before, or after."""
    recording = Recording(database)
    first, second, third, fourth = [asked(body, session_id="s") for body in agent(5)[1:]]
    for went_by in (first, second):
        await recording.record(went_by[1])
    await recording.take(third[1], fourth[1])
    written = database.write
    with pytest.MonkeyPatch.context() as patch:
        began = asyncio.Event()

        def once_read(**how: bool) -> Any:
            if not how.get("alone", True):
                return written(**how)
            began.set()
            raise OSError("not now")

        patch.setattr(database, "write", once_read)
        with pytest.raises(OSError, match="not now"):
            await recording.recorder.step()
        assert began.is_set()
    async with database.write() as session:
        await erasure.erase(session, "session_id", "s", 999_999.0)
        await session.execute(text("DELETE FROM erasures"))
    assert await segments_kept.count(database) == 0
    while await recording.recorder.step():
        pass
    assert await segments_kept.request_texts(database) == {name: one.request_body for name, one in (third, fourth)}
    later = [asked(body, session_id="s") for body in agent(7)[5:]]
    for _, went_by in later:
        await recording.record(went_by)
    kept = await segments_kept.request_texts(database)
    assert kept == {name: one.request_body for name, one in (third, fourth, *later)}
    assert await segments_kept.count(database) == 2, "it begins anew, and goes on from there"


@ON_BOTH_STORES
async def test_a_write_whose_end_is_not_known_leaves_nothing_that_others_go_on_from(database: Database) -> None:
    recording = Recording(database)
    sent = [asked(body) for body in agent(4)[1:]]
    await recording.take(sent[0][1])
    with deaf(database), pytest.raises(Exception, match="cut off"):
        await recording.recorder.step()
    for _, went_by in sent[1:]:
        await recording.record(went_by)
    while await recording.recorder.step():
        pass
    assert await segments_kept.request_texts(database) == {msg_id: one.request_body for msg_id, one in sent}
    assert await segments_kept.unneeded(database) == (0, 0)


@ON_BOTH_STORES
async def test_another_registration_begins_with_nothing(database: Database) -> None:
    recording = Recording(database)
    first, second = [asked(body) for body in agent(3)[1:]]
    await recording.record(first[1])
    recording.recorder.registered()
    await recording.record(second[1])
    async with database.read() as session:
        assert list(await session.scalars(select(SegmentRow.parent_id))) == [None, None]


async def test_two_callers_share_nothing(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path}/slipstream.db")
    await database.open()
    recording = Recording(database)
    _, body = agent(2)
    for key in ("sk-a", "sk-b"):
        headers = [(b"authorization", f"Bearer {key}".encode())]
        await recording.record(exchange(request_body=json.dumps(body).encode(), request_headers=headers))
    await recording.record(asked(body, session_id="named")[1])
    assert await segments_kept.count(database) == 3
    await database.close()


# Arbitrary conversations.

_STYLE = st.sampled_from(
    [{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False, "separators": (",", ":")}]
)
_ODD = st.sampled_from(
    [
        lambda sent: sent.replace(b'{"role"', b'{ "role"', 1),
        lambda sent: sent.replace(b"}, {", b"} ,  {", 1),
        lambda sent: sent.replace(b'"messages"', b'"messages": [1], "mess\\u0061ges"', 1),
        lambda sent: sent[:-1] + b', "messages": [{"role": "user", "content": "the last one counts"}]}',
        lambda sent: sent[:-1] + b', "user": "somebody else"}',
        lambda sent: b"  " + sent + b"\n",
    ]
)
_STEP = st.tuples(
    st.integers(0, 2),  # the conversation
    st.sampled_from(["on", "on", "on", "on", "again", "branch", "edit", "shorter"]),
    st.lists(MESSAGE, min_size=1, max_size=2),
    st.integers(0, 5),
    st.sampled_from([{}, {}, {}, {"temperature": 1}, {"tools": TOOLS[:1]}]),
    st.none() | st.none() | st.none() | _ODD,
    st.sampled_from(["more", "more", "more", "record", "record", "delete", "restart"]),
)


async def _whatever_is_sent(database: Database, steps: list[Any], styles: list[Any], named: bool) -> None:
    run = next(NUMBERS)
    recording = Recording(database)
    messages: list[list[Any]] = [[], [], []]
    sent: dict[str, bytes] = {}
    where: dict[str, str] = {}
    waiting: list[Exchange] = []
    for number, (who, way, new, at, parameters, odd, after) in enumerate(steps):
        messages[who] = said_next(messages[who], way, new, at)
        body = json.dumps({"model": f"m{who}", "messages": messages[who], **parameters}, **styles[who])
        encoded = body.encode("utf-8", "surrogatepass")
        names = {"session_id": f"s{run}-{who}", "task_id": f"t{run}-{number}"} if named else {}
        msg_id, went_by = asked(odd(encoded) if odd else encoded, **names)
        kept = REDACTOR.redact(went_by)
        call = kept if isinstance(kept, NotCaptured) else read_call(kept, Histories(Items(), Newest(1)))
        if not isinstance(call, NotCaptured):
            sent[msg_id] = call.request_text
            where[msg_id] = names.get("task_id", "")
        waiting.append(went_by)
        if after != "more":
            await recording.record(*waiting)
            waiting.clear()
        if after == "restart":
            recording = Recording(database)
        if after == "delete" and named and sent:
            gone = list(sent)[at % len(sent)]
            async with database.write() as session:
                await tasks.delete_tasks(session, [where[gone]])
            del sent[gone]
    await recording.record(*waiting)
    assert await segments_kept.request_texts(database) == sent
    assert await segments_kept.unneeded(database) == (0, 0)
    async with database.write() as session:
        await tasks.delete_tasks(session, list(await session.scalars(select(CallRow.task_id))))
    assert await segments_kept.count(database) == 0


@pytest.mark.parametrize(
    ("store_url", "examples"),
    [
        ("sqlite", 5),
        pytest.param("sqlite", 60, marks=pytest.mark.slow),
        pytest.param("postgresql", 60, marks=pytest.mark.slow),
    ],
    indirect=["store_url"],
)
def test_whatever_is_sent_reads_as_it_was_sent(store_url: str, examples: int) -> None:
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
        @given(st.lists(_STEP, max_size=25), st.lists(_STYLE, min_size=3, max_size=3), st.booleans())
        def check(steps: list[Any], styles: list[Any], named: bool) -> None:
            runner.run(_whatever_is_sent(database, steps, styles, named))

        check()
        runner.run(database.close())
