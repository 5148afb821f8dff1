"""Streams of `/v1/responses`, as OpenAI and other servers send them, put together again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from slipstream.dialects.body import Reason, Unreadable
from slipstream.dialects.responses import assembly
from slipstream.dialects.responses.translator import ResponsesTranslator

RESPONSES = ResponsesTranslator()
Event = dict[str, Any]

TEXT: Event = {"type": "output_text", "text": "Grüße 🙂\u2028!", "annotations": [], "logprobs": []}
MESSAGE = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [TEXT]}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "add",
    "arguments": '{"a": 1}',
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_750_000_000,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-5",
    "output": [MESSAGE, CALL],
    "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
}
BEGUN = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}


def sse(events: Iterable[Event], *, named: bool = True) -> bytes:
    return b"".join(
        (f"event: {event['type']}\n" if named else "").encode()
        + b"data: "
        + json.dumps(event | {"sequence_number": number}, ensure_ascii=False).encode()
        + b"\n\n"
        for number, event in enumerate(events)
    )


def head(response: Event = BEGUN) -> list[Event]:
    return [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
    ]


def text_events(*, done: bool = True) -> list[Event]:
    """The events of `MESSAGE`, or their first part."""
    part = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = TEXT | {"text": ""}
    pieces = [TEXT["text"][:3], TEXT["text"][3:]]
    deltas = [
        {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": [], "obfuscation": "x"}
        for piece in pieces
    ]
    begun = MESSAGE | {"status": "in_progress", "content": []}
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **part, "part": empty},
        *deltas,
    ]
    end: list[Event] = [
        {"type": "response.output_text.done", **part, "text": TEXT["text"], "logprobs": []},
        {"type": "response.content_part.done", **part, "part": TEXT},
        {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    ]
    return events + (end if done else [])


def call_events(*, done: bool = True) -> list[Event]:
    place = {"item_id": "fc_1", "output_index": 1}
    begun = CALL | {"status": "in_progress", "arguments": ""}
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 1, "item": begun},
        {"type": "response.function_call_arguments.delta", **place, "delta": '{"a"'},
        {"type": "response.function_call_arguments.delta", **place, "delta": ": 1}"},
    ]
    end: list[Event] = [
        {"type": "response.function_call_arguments.done", **place, "arguments": '{"a": 1}'},
        {"type": "response.output_item.done", "output_index": 1, "item": CALL},
    ]
    return events + (end if done else [])


END = {"type": "response.completed", "response": RESPONSE}
EMPTY_END = {"type": "response.completed", "response": RESPONSE | {"output": []}}
ITEMS = text_events() + call_events()
OPENAI = sse([*head(), *ITEMS, END])


def assemble(body: bytes) -> dict[str, Any]:
    return RESPONSES.assemble(body, {})


def spoken(answer: Event) -> Any:
    """What an agent sees of the answer: its chat message."""
    assert RESPONSES.flaw(answer, {}, whole=True) is None
    return RESPONSES.chat_form({"input": "hi"}, answer).answer["choices"][0]["message"]


SPOKEN = spoken(RESPONSE)


def test_the_last_event_is_the_whole_answer() -> None:
    assert assemble(OPENAI) == RESPONSE


def test_only_the_last_event_is_read_if_it_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes | str] = []

    def counted(text: bytes | str) -> Any:
        read.append(text)
        return json.loads(text)

    monkeypatch.setattr(assembly, "parse_json", counted)
    assert assemble(OPENAI) == RESPONSE
    assert len(read) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(sse([*head(), *ITEMS, END], named=False), id="no event names"),
        pytest.param(OPENAI + b"data: [DONE]\n\n", id="[DONE] behind"),
        pytest.param(OPENAI + b"data: [DONE]", id="[DONE] without a blank line"),
        pytest.param(OPENAI + b": keep-alive\n\n", id="a comment behind"),
        pytest.param(OPENAI + b'event: ping\ndata: {"type": "ping"}\n\n', id="an event behind"),
        pytest.param(OPENAI.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(OPENAI.replace(b"\n", b"\r"), id="CR"),
        pytest.param(b"\xef\xbb\xbf" + OPENAI, id="a byte order mark"),
        pytest.param(OPENAI.replace(b"data: ", b"data:"), id="no blank behind the colon"),
        pytest.param(sse([END]), id="nothing but the end"),
        pytest.param(
            b"data: " + json.dumps(END, indent=1).encode().replace(b"\n", b"\ndata: ") + b"\n\n", id="many lines"
        ),
    ],
)
def test_however_the_events_are_written(body: bytes) -> None:
    assert assemble(body) == RESPONSE


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*head(), *ITEMS, EMPTY_END], id="an end without output"),
        pytest.param(
            [*head(), *ITEMS, {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}}],
            id="an end that has next to nothing",
        ),
        pytest.param(
            [
                *head(),
                *ITEMS,
                {"type": "response.completed", "response": RESPONSE | {"output": [MESSAGE | {"content": []}, CALL]}},
            ],
            id="an end without the text",
        ),
        pytest.param(
            [*head(), *text_events(done=False), *call_events(done=False), EMPTY_END], id="items that are not done"
        ),
        pytest.param(
            [*head(), *[event for event in ITEMS if event["type"].endswith("item.done")], EMPTY_END], id="items only"
        ),
        pytest.param(
            [*head(), *[event for event in ITEMS if "part" not in event["type"]], EMPTY_END], id="no content parts"
        ),
        pytest.param(
            [
                *head(),
                *[
                    {key: value for key, value in event.items() if key not in ("output_index", "content_index")}
                    for event in ITEMS
                ],
                EMPTY_END,
            ],
            id="no indexes",
        ),
        pytest.param(
            [
                *head(),
                *[{key: value for key, value in event.items() if key != "item_id"} for event in ITEMS],
                EMPTY_END,
            ],
            id="no ids",
        ),
        pytest.param(
            [
                *head(),
                *[event | {"content_index": 7} if "content_index" in event else event for event in text_events()[:-1]],
                *call_events(),
                EMPTY_END,
            ],
            id="indexes that count something else",
        ),
        pytest.param(
            [*head(), *[event for event in ITEMS if event["type"] != "response.output_item.added"], EMPTY_END],
            id="items that were not announced",
        ),
    ],
)
def test_an_answer_that_the_end_does_not_hold_is_put_together(events: list[Event]) -> None:
    answer = assemble(sse(events))
    assert spoken(answer) == SPOKEN
    assert answer["status"] == "completed"
    assert answer["id"] == "resp_1"


def test_a_stream_without_an_end_counts_if_it_says_that_all_is_done() -> None:
    body = sse([*head(), *ITEMS]) + b"data: [DONE]\n\n"
    answer = assemble(body)
    assert (answer["status"], answer["id"], answer["output"]) == ("completed", "resp_1", [MESSAGE, CALL])


def test_what_was_streamed_of_an_answer_that_was_too_long() -> None:
    end = RESPONSE | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}
    answer = assemble(sse([*head(), *text_events(done=False), {"type": "response.incomplete", "response": end}]))
    assert spoken(answer)["content"] == TEXT["text"]
    assert RESPONSES.chat_form({"input": "x"}, answer).answer["choices"][0]["finish_reason"] == "length"


def test_log_probabilities_thoughts_refusals_citations_and_custom_calls_in_pieces() -> None:
    part = {"item_id": "m", "output_index": 1, "content_index": 0}
    thought = {"item_id": "r", "output_index": 0, "summary_index": 0}
    cited = {"type": "url_citation", "start_index": 0, "end_index": 1, "title": "t", "url": "http://x"}
    first, second = ({"token": token, "logprob": -0.5, "top_logprobs": []} for token in "ab")
    events: list[Event] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"id": "r", "type": "reasoning"}},
        {"type": "response.reasoning_summary_part.added", **thought, "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **thought, "delta": "H"},
        {"type": "response.reasoning_summary_text.delta", **thought, "delta": "m"},
        {"type": "response.output_text.delta", **part, "delta": "a", "logprobs": [first]},
        {"type": "response.output_text.delta", **part, "delta": "b", "logprobs": [second]},
        {"type": "response.output_text.annotation.added", **part, "annotation_index": 0, "annotation": cited},
        {"type": "response.refusal.delta", **part, "content_index": 1, "delta": "N"},
        {"type": "response.refusal.done", **part, "content_index": 1, "refusal": "No."},
        {
            "type": "response.output_item.added",
            "output_index": 2,
            "item": {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": ""},
        },
        {"type": "response.custom_tool_call_input.delta", "output_index": 2, "item_id": "x", "delta": "SELECT"},
        {"type": "response.custom_tool_call_input.delta", "output_index": 2, "item_id": "x", "delta": " 1"},
        EMPTY_END,
    ]
    assert assemble(sse(events))["output"] == [
        {"id": "r", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "ab", "logprobs": [first, second], "annotations": [cited]},
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT 1"},
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", "truncated_stream", id="nothing"),
        pytest.param(b"data: [DONE]\n\n", "truncated_stream", id="nothing but [DONE]"),
        pytest.param(sse([*head(), *text_events(done=False)]), "truncated_stream", id="cut in a text"),
        pytest.param(sse([*head(), *text_events()]), "truncated_stream", id="cut between two items"),
        pytest.param(OPENAI[:-1], "truncated_stream", id="cut before the last blank line"),
        pytest.param(OPENAI[:-20], "truncated_stream", id="cut in the last event"),
        pytest.param(
            sse([*head(), *text_events(), *call_events(done=False)]) + b"data: [DONE]\n\n",
            "truncated_stream",
            id="[DONE] amid an item",
        ),
        pytest.param(
            sse([*head(), {"type": "error", "code": "server_error", "message": "x", "param": None}]),
            "error_in_stream",
            id="an error",
        ),
        pytest.param(
            sse([*head(), {"type": "response.failed", "response": BEGUN | {"status": "failed"}}]),
            "error_in_stream",
            id="a failure",
        ),
        pytest.param(b'data: {"error": {"message": "x"}}\n\n', "error_in_stream", id="an error of a gateway"),
        pytest.param(b"event: error\ndata: {}\n\n", "error_in_stream", id="an error by its name"),
        pytest.param(b"data: <html>\n\n", "not_json", id="no JSON"),
        pytest.param(b"data: 7\n\n", "no_answer", id="no object"),
        pytest.param(
            sse([{"type": "response.output_text.delta", "delta": {"text": "x"}}]), "no_answer", id="text that is none"
        ),
        pytest.param(b"data: [" + b"[]," * 3_000_000 + b"[]]\n\n", "too_many_values", id="too many values"),
    ],
)
def test_half_an_answer_is_none(body: bytes, reason: Reason) -> None:
    with pytest.raises(Unreadable) as caught:
        assemble(body)
    assert caught.value.reason == reason


def test_an_answer_whose_end_says_that_there_is_nothing_is_none() -> None:
    answer = assemble(sse([*head(), EMPTY_END]))
    assert RESPONSES.flaw(answer, {}, whole=True) == "no_answer"
