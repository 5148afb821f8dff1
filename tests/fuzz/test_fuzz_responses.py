"""`/v1/responses`: a conversation is the same in both forms, answers survive streaming, and no JSON is a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.dialects.body import Unreadable
from slipstream.dialects.events import events
from slipstream.dialects.form import PROBLEMS, Unsayable
from slipstream.dialects.responses.translator import ResponsesTranslator

RESPONSES = ResponsesTranslator()
TEXT = st.text(max_size=8)
NAME = st.text("abcd_1", min_size=1, max_size=6)
CALL = st.fixed_dictionaries({"name": NAME, "arguments": TEXT})
CUSTOM = st.fixed_dictionaries({"name": NAME, "input": TEXT})
Message = dict[str, Any]


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """What an assistant says and calls, and the results of all of its calls."""
    called = draw(st.lists(st.tuples(st.just("function"), CALL) | st.tuples(st.just("custom"), CUSTOM), max_size=3))
    content = draw(TEXT | st.none()) if called else draw(TEXT)
    message: Message = {"role": "assistant", "content": content}
    if draw(st.booleans()) and not called:
        message |= {"content": None, "refusal": draw(st.text(min_size=1, max_size=8))}
    if called:
        message["tool_calls"] = [
            {"id": f"call_{number}", "type": kind, kind: call} for number, (kind, call) in enumerate(called)
        ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": draw(TEXT)} for call in message.get("tool_calls", [])
    ]
    return [message, *results]


PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), min_size=2, max_size=3)
OTHERS = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "developer"]), "content": TEXT | PARTS})


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Turns of assistants with at least one message of another role between two of them."""
    messages: list[Message] = [draw(OTHERS)]
    for _ in range(draw(st.integers(0, 3))):
        messages += [*draw(turns()), *draw(st.lists(OTHERS, min_size=1, max_size=2))]
    return messages


def as_items(message: Message, *, easy: bool) -> list[Message]:
    """The message as items of the Responses API: easy ones, or in the form of an answer's output."""
    role, content = message["role"], message["content"]
    if role == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": content}]
    if role != "assistant":
        if isinstance(content, list):
            content = [{"type": "input_text", "text": part["text"]} for part in content]
        elif not easy:
            content = [{"type": "input_text", "text": content}]
        return [{"role": role, "content": content} | ({} if easy else {"type": "message"})]
    items: list[Message] = [] if easy else [{"type": "reasoning", "id": "rs_1", "summary": []}]
    if "refusal" in message:
        items.append({"role": role, "content": [{"type": "refusal", "refusal": message["refusal"]}]})
    elif content is not None:
        parts = [{"type": "output_text", "text": content, "annotations": []}]
        items.append(
            {"role": role, "content": content} if easy else {"type": "message", "role": role, "content": parts}
        )
    for call in message.get("tool_calls", []):
        kind = {"function": "function_call", "custom": "custom_tool_call"}[call["type"]]
        items.append({"type": kind, "call_id": call["id"], **call[call["type"]]})
    return items


@given(conversations(), st.booleans())
def test_a_chat_that_is_written_as_items_is_the_same_chat(messages: list[Message], easy: bool) -> None:
    items = [item for message in messages for item in as_items(message, easy=easy)]
    assert RESPONSES.is_request({"input": items})
    output: list[Message] = [{"type": "message", "role": "assistant", "content": "so?"}]
    form = RESPONSES.chat_form({"input": items}, {"output": output})
    assert form.request["messages"] == messages
    custom = any(call["type"] == "custom" for message in messages for call in message.get("tool_calls", []))
    assert form.problem == ("unsayable" if custom else None)


COMPLETIONS = st.fixed_dictionaries(
    {
        "message": turns().map(lambda turn: turn[0]),
        "thought": TEXT,
        "finish": st.sampled_from(["stop", "tool_calls", "length", "content_filter"]),
    }
)


@given(COMPLETIONS)
def test_an_answer_survives_its_stream_and_says_what_the_completion_says(drawn: dict[str, Any]) -> None:
    message = drawn["message"]
    about = {"index": 0, "finish_reason": drawn["finish"], "message": message | {"reasoning_content": drawn["thought"]}}
    answer = RESPONSES.answer({"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [about]}, {"input": "x"})
    body = b"".join(RESPONSES.stream(answer))
    assert RESPONSES.assemble(body, {}) == answer
    seen = [json.loads(data) for _, data in events(body)]
    seen[-1]["response"] = answer | {"output": []}
    pieces = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in seen)
    assert RESPONSES.assemble(pieces, {}) == answer
    said = RESPONSES.chat_form({"input": "x"}, answer).answer["choices"][0]["message"]
    assert (said["content"] or "") == (message["content"] or "")
    assert said["refusal"] == message.get("refusal")
    assert said.get("tool_calls") == message.get("tool_calls")


_WORDS = (
    "type role content text id call_id name arguments input output message reasoning function_call custom_tool_call "
    "function_call_output item_reference output_text input_text input_image refusal assistant user tools tool_choice "
    "function custom shell environment tool_search allowed_tools format json_schema status completed incomplete "
    "incomplete_details reason usage annotations logprobs url_citation instructions previous_response_id conversation "
    "prompt include top_logprobs caller namespace allowed_callers response item part delta item_id output_index "
    "content_index summary_index annotation error"
)
WORDS = st.sampled_from(_WORDS.split())
_KINDS = (
    "response.created response.completed response.incomplete response.failed response.output_item.added "
    "response.output_item.done response.content_part.added response.content_part.done response.output_text.delta "
    "response.output_text.done response.refusal.delta response.function_call_arguments.delta "
    "response.function_call_arguments.done response.custom_tool_call_input.done response.reasoning_summary_part.added "
    "response.reasoning_summary_text.delta response.output_text.annotation.added error"
)
KINDS = st.sampled_from(_KINDS.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.floats(allow_nan=False, allow_infinity=False) | WORDS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=30,
)
ITEMS = st.lists(
    st.dictionaries(WORDS, JSON, max_size=5)
    | st.fixed_dictionaries({"type": WORDS}, optional={"content": JSON, "role": WORDS, "call_id": TEXT, "name": TEXT}),
    max_size=4,
)
REQUESTS = st.dictionaries(WORDS, JSON, max_size=8) | st.fixed_dictionaries(
    {"input": ITEMS | JSON},
    optional=dict.fromkeys(("tools", "tool_choice", "text", "prompt", "include", "instructions", "reasoning"), JSON),
)
ANSWERS = st.fixed_dictionaries({"output": ITEMS | JSON}, optional={"status": WORDS, "usage": JSON, "created_at": JSON})


@given(REQUESTS, ANSWERS)
def test_no_json_is_a_crash(request: dict[str, Any], answer: dict[str, Any]) -> None:
    RESPONSES.history(request)
    asks = RESPONSES.is_request(request)
    try:
        asked = RESPONSES.chat_request(request)
    except Unsayable:
        pass
    else:
        assert asks
        assert asked["messages"]
    if RESPONSES.flaw(answer, request, whole=True) is None:
        form = RESPONSES.chat_form(request, answer)
        assert form.request["messages"]
        assert form.problem in (None, *PROBLEMS)
        assert form.answer["choices"][0]["finish_reason"]


@pytest.mark.slow
@given(st.lists(st.tuples(KINDS, st.dictionaries(WORDS, JSON, max_size=5)), max_size=6), st.booleans())
def test_no_stream_is_a_crash(drawn: list[tuple[str, dict[str, Any]]], named: bool) -> None:
    body = b"".join(
        (b"event: %b\n" % kind.encode() if named else b"")
        + b"data: %b\n\n" % json.dumps(event if named else event | {"type": kind}).encode()
        for kind, event in drawn
    )
    try:
        answer = RESPONSES.assemble(body, {})
    except Unreadable:
        return
    assert isinstance(answer, dict)
    RESPONSES.flaw(answer, {}, whole=True)
