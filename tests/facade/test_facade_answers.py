"""Which answers are whole: only those may be rewarded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipstream.facade.answers import Answer, read_answer, read_piece

LIMIT = 1024 * 1024


def plain(**changes: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    return json.dumps({"id": "chatcmpl-1", "choices": [choice], **changes}).encode()


def stream(*finish_reasons: str | None, end: bytes = b"data: [DONE]\n\n", **changes: Any) -> bytes:
    chunks = [
        {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": "y"}, "finish_reason": reason}], **changes}
        for reason in finish_reasons
    ]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + end


def choices(*reasons: str | None) -> list[dict[str, Any]]:
    return [{"index": i, "message": {"content": "x"}, "finish_reason": reason} for i, reason in enumerate(reasons)]


@pytest.mark.parametrize(
    ("body", "streamed", "expected"),
    [
        (plain(), False, Answer("chatcmpl-1", 1, None)),
        (plain(choices=choices("stop", "length")), False, Answer("chatcmpl-1", 2, None)),
        (plain(choices=choices("stop", None)), False, Answer("chatcmpl-1", 2, "no_finish_reason")),
        (plain(choices=choices("stop", "abort")), False, Answer("chatcmpl-1", 2, "aborted")),
        (stream(None, "abort"), True, Answer("chatcmpl-1", 1, "aborted")),
        (plain(choices=[]), False, Answer("chatcmpl-1", 0, "no_finish_reason")),
        (plain(choices=None), False, Answer(None, 0, "no_answer")),
        (plain(choices=[7]), False, Answer(None, 0, "no_answer")),
        (plain(id=None), False, Answer(None, 1, "no_id")),
        (plain(id="x" * 257), False, Answer(None, 1, "no_id")),
        (plain(id="\ud800"), False, Answer(None, 1, "no_id")),
        (plain()[:-5], False, Answer(None, 0, "not_json")),
        (b"[]", False, Answer(None, 0, "no_answer")),
        (stream(None, "stop"), True, Answer("chatcmpl-1", 1, None)),
        (stream(None, None), True, Answer("chatcmpl-1", 0, "truncated")),
        (stream(None, "stop", end=b""), True, Answer("chatcmpl-1", 0, "truncated")),
        (stream("stop", error={"message": "the engine died"}), True, Answer("chatcmpl-1", 0, "truncated")),
        (stream(), True, Answer(None, 0, "truncated")),
    ],
)
def test_an_answer_is_read(body: bytes, streamed: bool, expected: Answer) -> None:
    assert read_answer(body, [], LIMIT, streamed=streamed) == expected


@pytest.mark.parametrize("length", range(0, 130, 10))
def test_a_cut_stream_is_known_by_its_id_from_its_first_event_on(length: int) -> None:
    body = stream(None, "stop")[:length]
    first = body.find(b"\n\n") >= 0
    assert read_piece(body, "caller_gone") == Answer("chatcmpl-1" if first else None, 0, "caller_gone")
