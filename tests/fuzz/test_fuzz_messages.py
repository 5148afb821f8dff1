"""Calls of the Messages API: a conversation says the same in both forms, and no JSON makes the reader fail."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.dialects.body import Unreadable
from slipstream.dialects.form import Translator, Unsayable
from slipstream.dialects.messages.translator import MessagesTranslator

MESSAGES: Translator = MessagesTranslator()

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
INPUT = st.dictionaries(TEXT, PLAIN | st.lists(PLAIN, max_size=2), max_size=3)
CALLS = st.lists(st.tuples(TEXT, INPUT, TEXT), min_size=1, max_size=3)
"""Name, input and result of each call."""


@st.composite
def conversations(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A conversation as a request of the Messages API, and as messages of a chat."""
    said: list[dict[str, Any]] = []
    chat: list[dict[str, Any]] = []
    request: dict[str, Any] = {"model": "claude", "max_tokens": 9, "messages": said}
    if draw(st.booleans()):
        request["system"] = system = draw(TEXT)
        chat.append({"role": "system", "content": system})
    question = draw(TEXT)
    said.append({"role": "user", "content": question})
    chat.append({"role": "user", "content": question})
    ids = itertools.count(1)
    for _ in range(draw(st.integers(0, 3))):
        words = draw(TEXT)
        answer: list[dict[str, Any]] = [{"type": "text", "text": words}]
        turn: list[dict[str, Any]] = []
        calls, tools = [], []
        for name, tool_input, result in draw(CALLS) if draw(st.booleans()) else ():
            call_id = f"t{next(ids)}"
            answer.append({"type": "tool_use", "id": call_id, "name": name, "input": tool_input})
            function = {"name": name, "arguments": json.dumps(tool_input, ensure_ascii=False)}
            calls.append({"id": call_id, "type": "function", "function": function})
            turn.append({"type": "tool_result", "tool_use_id": call_id, "content": result})
            tools.append({"role": "tool", "tool_call_id": call_id, "content": result})
        if draw(st.booleans()):
            answer.insert(0, {"type": "thinking", "thinking": draw(TEXT), "signature": "s"})
        chat += [{"role": "assistant", "content": words} | ({"tool_calls": calls} if calls else {}), *tools]
        if not turn or draw(st.booleans()):
            reply = draw(TEXT)
            turn.insert(draw(st.integers(0, len(turn))), {"type": "text", "text": reply})
            chat.append({"role": "user", "content": reply})
        said += [{"role": "assistant", "content": answer}, {"role": "user", "content": turn}]
    return request, chat


def completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if message.get("tool_calls") else "stop"}
    return {
        "id": "chatcmpl-1",
        "model": "qwen",
        "choices": [choice],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
    }


@given(conversations())
def test_a_conversation_says_the_same_in_both_forms(made: tuple[dict[str, Any], list[dict[str, Any]]]) -> None:
    request, chat = made
    assert MESSAGES.chat_request(request)["messages"] == chat


@given(conversations(), st.booleans())
def test_an_answer_is_the_same_streamed_and_back_in_chat(
    made: tuple[dict[str, Any], list[dict[str, Any]]], thinks: bool
) -> None:
    request, chat = made
    request["thinking"] = {"type": "adaptive" if thinks else "disabled"}
    for message in chat:
        if message["role"] == "assistant":
            policy = completion(message | {"reasoning_content": "so"})
            answer = MESSAGES.answer(policy, request)
            assert MESSAGES.assemble(b"".join(MESSAGES.stream(answer)), request) == answer
            assert MESSAGES.flaw(answer, request, whole=True) is None
            back = MESSAGES.chat_form(request, answer).answer
            assert back["id"] == "chatcmpl-1"
            thought = {"reasoning_content": "so"} if thinks else {}
            assert back["choices"][0]["message"] == message | thought


NAMES = st.sampled_from([
    "type", "content", "text", "role", "messages", "tools", "name", "input", "input_schema", "system", "source",
    "citations", "tool_use_id", "thread", "previous_message_id", "output_config", "format", "effort", "tool_choice",
    "metadata", "usage", "stop_reason", "context_management", "applied_edits", "caller", "allowed_callers",
    "input_examples", "thinking", "index", "delta", "content_block", "message", "error", "partial_json", "title",
    "container",
])  # fmt: skip
WORDS = st.sampled_from([
    "text", "tool_use", "tool_result", "thinking", "document", "search_result", "image", "user", "assistant",
    "system", "message", "json_schema", "content", "continue", "tool", "auto", "custom", "message_start",
    "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop", "text_delta",
    "input_json_delta", "thinking_delta", "citations_delta", "end_turn",
])  # fmt: skip
JSON = st.recursive(
    PLAIN | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXT, inner, max_size=5),
    max_leaves=25,
)
BLOCK = st.fixed_dictionaries(
    {"type": WORDS | TEXT}, optional=dict.fromkeys(("text", "content", "source", "input"), JSON)
)
CONTENT = JSON | st.lists(BLOCK, max_size=4)


@given(
    st.dictionaries(NAMES, JSON, max_size=6),
    st.lists(st.fixed_dictionaries({"role": WORDS | JSON, "content": CONTENT}), min_size=1, max_size=4),
    st.fixed_dictionaries(
        {
            "content": st.lists(BLOCK | st.dictionaries(NAMES, JSON, max_size=4), max_size=3),
            "stop_reason": WORDS | TEXT,
        },
        optional={"usage": JSON, "id": JSON, "context_management": JSON, "container": JSON},
    ),
)
def test_any_json_has_a_chat_form_or_a_reason(
    fields: dict[str, Any], messages: list[dict[str, Any]], answer: dict[str, Any]
) -> None:
    request = fields | {"messages": messages}
    assert MESSAGES.is_request(request)
    MESSAGES.history(request)
    assert MESSAGES.flaw(answer, request, whole=True) is None
    form = MESSAGES.chat_form(request, answer)
    assert form.request["messages"]
    assert form.answer["choices"][0]["message"]["role"] == "assistant"
    try:
        assert MESSAGES.chat_request(request) == form.request
    except Unsayable as error:
        assert form.problem == error.problem  # noqa: PT017


@given(JSON)
def test_any_json_is_an_answer_or_has_a_flaw(answer: Any) -> None:
    if isinstance(answer, dict) and MESSAGES.flaw(answer, {}, whole=False) is None:
        MESSAGES.chat_form({"messages": [{"role": "user", "content": "hi"}]}, answer)


@pytest.mark.slow
@given(st.lists(st.tuples(WORDS | TEXT, st.dictionaries(NAMES, JSON, max_size=4)), max_size=8))
def test_any_events_are_an_answer_or_the_reason_why_not(made: list[tuple[str, dict[str, Any]]]) -> None:
    body = b"".join(b"data: " + json.dumps({**data, "type": kind}).encode() + b"\n\n" for kind, data in made)
    start = {"type": "message_start", "message": {"content": [], "stop_reason": "end_turn"}}
    for stream in (body, b"data: " + json.dumps(start).encode() + b"\n\n" + body):
        try:
            answer = MESSAGES.assemble(stream, {})
        except Unreadable:
            continue
        assert answer["stop_reason"]
        assert isinstance(answer["content"], list)
