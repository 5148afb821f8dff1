"""Task chaining: however conversations interleave and branch, and however the agents' frameworks write an answer into
the next request, each conversation keeps its session, and its tasks are its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from contexts import parse_memory
from hypothesis import given
from hypothesis import strategies as st

from slipstream.capture.completion import CapturedCall, read_call
from slipstream.capture.conversations import Conversations, Place
from slipstream.capture.histories import Histories, Items, Newest
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.capture.retries import Retries
from slipstream.dialects.body import NotCaptured
from slipstream.proxy.tap import Exchange
from slipstream.redaction.redactor import Redactor

REDACTOR = ExchangeRedactor(Redactor([]), 2**20, parse_memory())
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
ARGUMENT = TEXT | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


def call(messages: list[Any], answer: dict[str, Any], *, user: str, retry: int = 0) -> CapturedCall:
    exchange = Exchange(
        method="POST",
        path="/v1/chat/completions",
        request_headers=[(b"authorization", user.encode()), (b"x-stainless-retry-count", b"%d" % retry)],
        request_body=json.dumps({"model": "m", "messages": messages}).encode(),
        status=200,
        response_headers=[(b"content-type", b"application/json")],
        response_body=json.dumps(
            {"id": "x", "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}]}
        ).encode(),
        started_at=0.0,
        first_byte_after=0.1,
        duration=0.2,
        error=None,
    )
    kept = REDACTOR.redact(exchange)
    assert not isinstance(kept, NotCaptured), kept
    captured = read_call(kept, Histories(Items(), Newest(1)))
    assert not isinstance(captured, NotCaptured), captured
    return captured


@st.composite
def conversation(draw: st.DrawFn, name: str) -> list[tuple[int, CapturedCall]]:
    """The calls of an agent, each with the number of the user's turn that it belongs to."""
    messages: list[Any] = draw(st.sampled_from([[], [{"role": "system", "content": "help"}]]))
    framework = draw(st.frozensets(st.sampled_from(["names", "nulls", "drops", "parts", "blanks", "json", "ids"])))
    calls = []
    for turn in range(draw(st.integers(1, 3))):
        messages = [*messages, {"role": "user", "content": f"{name} {turn} {draw(TEXT)}"}]
        steps = draw(st.integers(0, 2))
        for step in range(steps + 1):
            answer: dict[str, Any] = {"role": "assistant", "content": f"{draw(TEXT)} {turn} {step}"}
            if step < steps:
                function = {"name": "f", "arguments": json.dumps({"x": draw(ARGUMENT)})}
                answer |= {
                    "content": draw(st.none() | TEXT),
                    "tool_calls": [{"id": f"c{turn}{step}", "type": "function", "function": function}],
                }
            calls.append((turn, call(messages, answer, user="one key for all")))
            messages = [*messages, written_again(framework, answer)]
            if step < steps:
                call_id = messages[-1]["tool_calls"][0]["id"]
                messages.append({"role": "tool", "tool_call_id": call_id, "content": draw(TEXT)})
    return calls


def written_again(framework: frozenset[str], answer: dict[str, Any]) -> dict[str, Any]:
    """An answer as a framework of these habits writes it into the next request."""
    message: dict[str, Any] = json.loads(json.dumps(answer))
    if "names" in framework:
        message["name"] = "forecaster"
    if "nulls" in framework:
        message |= {"function_call": None, "audio": None, "refusal": None, "annotations": [], "reasoning_content": "hm"}
    if "drops" in framework and "tool_calls" in message:
        del message["content"]
    if "parts" in framework and message.get("content"):
        message["content"] = [{"type": "text", "text": message["content"]}]
    if "blanks" in framework and isinstance(message.get("content"), str):
        message["content"] = f"\n{message['content'].strip()} "
    for called in message.get("tool_calls", []):
        if "json" in framework:
            arguments = json.loads(called["function"]["arguments"], parse_float=javascript)
            called["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
            called["index"] = 0
        if "ids" in framework:
            called["id"] = f"ours{called['id']}"
    return message


def javascript(number: str) -> float | int:
    value = float(number)
    return int(value) if value.is_integer() else value


@st.composite
def interleaved(draw: st.DrawFn) -> list[tuple[int, int, CapturedCall]]:
    """Calls of several conversations, each in its own order, as (conversation, turn, call)."""
    left = [list(draw(conversation(f"agent {number}"))) for number in range(draw(st.integers(1, 4)))]
    row = []
    while any(left):
        number = draw(st.sampled_from([number for number, calls in enumerate(left) if calls]))
        row.append((number, *left[number].pop(0)))
    return row


def places(calls: Sequence[CapturedCall]) -> list[Place]:
    ids = itertools.count()
    conversations = Conversations(1000, lambda: f"id-{next(ids)}")
    return [conversations.place(item) for item in calls]


@given(interleaved())
def test_any_interleaving_gives_each_conversation_its_session_and_each_turn_its_task(
    row: list[tuple[int, int, CapturedCall]],
) -> None:
    placed = places([item for _, _, item in row])
    sessions = {(number, place.session_id) for (number, _, _), place in zip(row, placed, strict=True)}
    tasks = {(number, turn, place.task_id) for (number, turn, _), place in zip(row, placed, strict=True)}
    conversations, turns = {number for number, _, _ in row}, {(number, turn) for number, turn, _ in row}
    assert len(sessions) == len({session for _, session in sessions}) == len(conversations)
    assert len(tasks) == len({task for _, _, task in tasks}) == len(turns)
    first = {task: index for index, task in reversed(list(enumerate(place.task_id for place in placed)))}
    assert [place.new_task for place in placed] == [first[place.task_id] == index for index, place in enumerate(placed)]


@given(conversation("agent"), st.integers(2, 4))
def test_a_conversation_continued_twice_becomes_two_sessions_and_never_a_mix(
    calls: list[tuple[int, CapturedCall]], times: int
) -> None:
    started = calls[0][1]
    messages = [*started.request["messages"], started.answer["choices"][0]["message"]]
    branches = [
        call(
            [*messages, {"role": "user", "content": f"branch {number}"}],
            {"role": "assistant", "content": "ok"},
            user="one key for all",
        )
        for number in range(times)
    ]
    placed = places([started, *branches])
    assert placed[1].session_id == placed[0].session_id
    assert len({place.session_id for place in placed[1:]}) == times
    assert len({place.task_id for place in placed}) == times + 1


@given(conversation("agent"), conversation("agent"))
def test_two_users_never_share_a_session(
    first: list[tuple[int, CapturedCall]], second: list[tuple[int, CapturedCall]]
) -> None:
    """Even where they say and hear the same: their keys differ."""
    others = [item._replace(principal=b"another") for _, item in [*first, *second]]
    mine = [item for _, item in [*first, *second]]
    placed = places([item for pair in zip(mine, others, strict=True) for item in pair])
    assert {place.session_id for place in placed[::2]}.isdisjoint(place.session_id for place in placed[1::2])


@given(interleaved(), st.data())
def test_a_retry_is_where_an_attempt_with_the_same_words_is(
    row: list[tuple[int, int, CapturedCall]], data: st.DataObject
) -> None:
    retries, conversations = Retries(1000, clock=lambda: 0.0), Conversations(1000)
    newest: dict[str, tuple[CapturedCall, Place]] = {}
    for _, _, item in row:
        assert retries.earlier(item) is None, "a first attempt is a call of its own, whatever was asked before"
        place = conversations.place(item)
        retries.add(item, place)
        newest[place.session_id] = item, place
    again, _ = data.draw(st.sampled_from([*newest.values()]))
    found = retries.earlier(again._replace(retry=1, started_at=again.started_at + 60.0))
    assert found is not None
    assert found.place in [place for item, place in newest.values() if item.digest == again.digest]


@given(interleaved(), st.integers(1, 5))
def test_what_is_forgotten_costs_sessions_and_never_mixes_them(
    row: list[tuple[int, int, CapturedCall]], limit: int
) -> None:
    conversations = Conversations(limit)
    owner: dict[str, int] = {}
    for number, _, item in row:
        place = conversations.place(item)
        assert owner.setdefault(place.session_id, number) == number
