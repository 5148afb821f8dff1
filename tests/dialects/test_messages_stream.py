"""Event streams of the Messages API, as the API and gateways send them, put together again."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic_messages import message, sse, text, tool_use
from pydantic import TypeAdapter

from slipstream.dialects import body
from slipstream.dialects.body import Unreadable
from slipstream.dialects.form import Translator
from slipstream.dialects.messages import stream
from slipstream.dialects.messages.translator import MessagesTranslator

MESSAGES: Translator = MessagesTranslator()
Event = dict[str, Any]

START: Event = {
    "type": "message_start",
    "message": message(content=[], stop_reason=None) | {"usage": {"input_tokens": 25, "output_tokens": 1}},
}
STOP: Event = {"type": "message_stop"}
PING: Event = {"type": "ping"}
END: Event = {
    "type": "message_delta",
    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
    "usage": {"output_tokens": 15, "cache_read_input_tokens": None},
}
END_WITH_TOOL = END | {"delta": {"stop_reason": "tool_use"}}


def begin(index: int, block: Event) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def end(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


def words(index: int, *pieces: str) -> list[Event]:
    return [begin(index, text("")), *(delta(index, "text_delta", text=piece) for piece in pieces), end(index)]


def call(index: int, *pieces: str) -> list[Event]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    return [begin(index, tool_use("t1", "add")), *deltas, end(index)]


CITATION = {"type": "char_location", "cited_text": "4", "document_index": 0, "start_char_index": 0, "end_char_index": 1}
REAL = {
    "text": ([START, *words(0, "Grü", "ße, 你好 🙂\u2028", "!")[:2], PING, *words(0, "Grü", "ße!")[2:], END, STOP]),
    "tool": ([START, *words(0, "I add."), *call(1, "", '{"a"', ": 2", "}"), END_WITH_TOOL, STOP]),
    "thinking": (
        [
            START,
            begin(0, {"type": "thinking", "thinking": "", "signature": ""}),
            delta(0, "thinking_delta", thinking="Add "),
            delta(0, "thinking_delta", thinking="them."),
            delta(0, "signature_delta", signature="EqQB"),
            end(0),
            begin(1, {"type": "redacted_thinking", "data": "Emw"}),
            end(1),
            *words(2, "4"),
            END,
            STOP,
        ]
    ),
    "citations": (
        [
            START,
            begin(0, {"type": "text", "text": "", "citations": []}),
            delta(0, "citations_delta", citation=CITATION),
            delta(0, "text_delta", text="It is 4"),
            delta(0, "citations_delta", citation=CITATION | {"start_char_index": 5}),
            end(0),
            END,
            STOP,
        ]
    ),
    "two calls": ([START, *call(0, '{"a": 1}'), *call(1, '{"a": 2}'), END_WITH_TOOL, STOP]),
    "no input": ([START, *call(0, ""), END_WITH_TOOL, STOP]),
    "nothing": ([START, END, STOP]),
}


def assembled(*events: Event) -> dict[str, Any]:
    return MESSAGES.assemble(sse(*events), {})


def content(*events: Event) -> Any:
    return assembled(START, *events, END, STOP)["content"]


@pytest.mark.parametrize("name", REAL)
def test_a_stream_is_put_together_as_the_vendors_sdk_does_it(name: str) -> None:
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import RawMessageStreamEvent

    snapshot, buffers = None, dict[int, bytes]()
    for event in REAL[name]:
        if event["type"] != "ping":
            read = TypeAdapter[RawMessageStreamEvent](RawMessageStreamEvent).validate_python(event)
            snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    expected = snapshot.to_dict(mode="json", exclude_unset=False, exclude_none=True, exclude_defaults=False)
    answer = assembled(*REAL[name])
    assert {key: value for key, value in answer.items() if value is not None} == expected
    assert MESSAGES.flaw(answer, {}, whole=True) is None


def test_the_last_counts_are_of_the_whole_message() -> None:
    usage = {"output_tokens": 20, "cache_read_input_tokens": 7, "server_tool_use": None}
    answer = assembled(START, *words(0, "a"), END, END | {"usage": usage}, STOP)
    assert answer["usage"] == {"input_tokens": 25, "output_tokens": 20, "cache_read_input_tokens": 7}


def test_what_the_end_of_the_message_says_beside_it() -> None:
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3}]}
    said = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "bio"}}
    answer = assembled(START, END | {"delta": said, "context_management": edits}, STOP)
    assert (answer["stop_reason"], answer["stop_details"]["category"]) == ("refusal", "bio")
    assert answer["context_management"] == edits


def test_streams_of_gateways() -> None:
    assert content(begin(0, tool_use("t1", "add", a=1)), end(0)) == [tool_use("t1", "add", a=1)]
    assert content(begin(0, tool_use("t1", "add", a=1)), delta(0, "input_json_delta", partial_json="")) == [
        tool_use("t1", "add", a=1)
    ]
    assert content(*words(0, "a")[:-1], *words(1, "b")[:-1]) == [text("a"), text("b")]
    assert content(delta(0, "text_delta", text="a"), delta(0, "text_delta", text="b")) == [text("ab")]
    assert content(begin(0, text("a")), delta(0, "text_delta", text="b")) == [text("ab")]
    assert content(*words(1, "b"), *words(0, "a")) == [text("a"), text("b")]
    without_names = sse(START, *words(0, "a"), END, STOP, names=False)
    assert MESSAGES.assemble(without_names, {})["content"] == [text("a")]
    assert MESSAGES.assemble(sse(START, *words(0, "a"), END) + b"data: [DONE]\n\n", {})["content"] == [text("a")]
    nameless = sse(START, *words(0, "a"), END, STOP).replace(b'"type": "message_stop"', b'"a": 1')
    assert MESSAGES.assemble(nameless, {})["content"] == [text("a")]


@pytest.mark.parametrize("pieces", [['{"a": ', "1"], ["[1]"], ["{'a': 1}"]])
def test_input_that_is_no_json_object_is_kept_as_text(pieces: list[str]) -> None:
    assert content(*call(0, *pieces)) == [tool_use("t1", "add", INVALID_JSON="".join(pieces))]


def test_an_unknown_block_and_an_unknown_event_are_kept_and_left_out() -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]}
    compaction = {"type": "compaction", "content": None}
    summary = delta(1, "compaction_delta", content="They added.")
    events = [begin(0, result), end(0), {"type": "news_of_next_year"}, begin(1, compaction), summary, end(1)]
    assert content(*events) == [result, {"type": "compaction", "content": "They added."}]


@pytest.mark.parametrize("name", REAL)
def test_no_beginning_of_a_stream_is_an_answer(name: str) -> None:
    events = REAL[name]
    whole = sse(*events)
    last = len(sse(*events[:-1]))  # from here on only `message_stop` is missing
    for at in range(last):
        with pytest.raises(Unreadable):
            MESSAGES.assemble(whole[:at], {})
    assert MESSAGES.assemble(whole[:last], {}) == MESSAGES.assemble(whole, {})


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([START, *words(0, "a"), {"type": "error", "error": {"type": "overloaded_error"}}], "error_in_stream"),
        ([START, END | {"delta": {}}, STOP], "truncated_stream"),
        ([PING], "truncated_stream"),
        ([], "truncated_stream"),
        ([END, STOP], "no_answer"),
        ([{"type": "message_start", "message": []}], "no_answer"),
        ([START, begin(0, text("")) | {"index": "0"}], "no_answer"),
        ([START, {"type": "content_block_delta", "index": 0, "delta": "a"}], "no_answer"),
        ([START, *words(0, "a")[:1], delta(0, "text_delta", text=None)], "no_answer"),
    ],
)
def test_what_is_no_answer_is_refused(events: list[Event], reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        assembled(*events)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("stream_of_bytes", "reason"),
    [
        (b"event: error\ndata: no\n\n", "error_in_stream"),
        (b'data: {"error": {"message": "of a gateway"}}\n\n', "error_in_stream"),
        (b"data: <html>\n\n", "not_json"),
        (b"data: []\n\n", "no_answer"),
        (b"data: [DONE]\n\n", "truncated_stream"),
    ],
)
def test_other_bytes_are_refused(stream_of_bytes: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as refused:
        MESSAGES.assemble(stream_of_bytes, {})
    assert refused.value.reason == reason


def test_a_stream_of_too_many_values_is_refused_before_it_is_read() -> None:
    with pytest.raises(Unreadable) as refused:
        MESSAGES.assemble(b"data: [" + b"," * (4 * body.MAX_VALUES) + b"]\n\n", {})
    assert refused.value.reason == "too_many_values"


ANSWERS = {
    "text": message(text("Grüße 🙂")),
    "empty": message(text("")),
    "tools": message(text("I add."), tool_use("t1", "add", a=[1, {"b": 2.5}]), tool_use("t2", "now")),
    "thinking": message({"type": "thinking", "thinking": "Add.", "signature": "s"}, text("4")),
    "citations": message(text("4", citations=[CITATION])),
    "of the provider": message({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, text("x")),
    "half of a pair": message(text("\ud83d")),
    "sequence": message(stop_reason="stop_sequence", stop_sequence="END"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_streamed_is_put_together_as_it_was(name: str) -> None:
    assert MESSAGES.assemble(b"".join(MESSAGES.stream(ANSWERS[name])), {}) == ANSWERS[name]


def test_the_events_come_in_the_order_of_the_api() -> None:
    kinds = [name for name, _ in stream.events(b"".join(MESSAGES.stream(ANSWERS["tools"])))]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block, *block, *block, "message_delta", "message_stop"]
