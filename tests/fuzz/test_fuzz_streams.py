"""Event streams and bodies of any bytes: the same in whatever pieces they come, never a crash, no part for a whole."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from contexts import parse_memory
from hypothesis import given
from hypothesis import strategies as st

from slipstream.capture.completion import read_call
from slipstream.capture.histories import Histories, Items
from slipstream.capture.redacted import ExchangeRedactor
from slipstream.dialects.body import NotCaptured, Unreadable
from slipstream.dialects.chat_stream import assemble
from slipstream.dialects.events import events
from slipstream.http.encodings import Undecodable, decoded
from slipstream.proxy.tap import Exchange, ExchangeHead, Recording, Room
from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactRule

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT | st.sampled_from(["choices", "delta", "index", "content"]), inner, max_size=3)
    ),
    max_leaves=12,
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
NOISE = st.lists(
    st.sampled_from(
        [
            b"data: ",
            b"data:",
            b"[DONE]",
            b"\n",
            b"\n\n",
            b"\r",
            b": ping",
            b"event: error",
            b"{}",
            b'{"choices":[]}',
            b"\xff",
            b"id: 1",
        ]
    )
    | st.binary(max_size=8),
    max_size=12,
).map(b"".join)


@st.composite
def stream(draw: st.DrawFn) -> tuple[list[str], bytes]:
    """What each choice says, and the whole stream."""
    texts = draw(st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=3))
    chunks: list[Any] = [
        {"id": "x", "choices": [{"index": index, "delta": {"content": piece}}]}
        for index, pieces in enumerate(texts)
        for piece in pieces
    ]
    chunks = draw(st.permutations([chunks]))[0]
    chunks += [
        {"id": "x", "choices": [{"index": index, "delta": {}, "finish_reason": "stop"}]} for index in range(len(texts))
    ]
    end = draw(ENDS)
    lines = [b"data: " + json.dumps(chunk, ensure_ascii=draw(st.booleans())).encode() + end + end for chunk in chunks]
    return ["".join(pieces) for pieces in texts], b"".join([*lines, b"data: [DONE]" + end + end])


@given(stream())
def test_a_whole_stream_says_what_its_pieces_said(made: tuple[list[str], bytes]) -> None:
    texts, body = made
    said = [choice["message"].get("content") or "" for choice in assemble(body)["choices"]]
    assert said == texts


@given(stream(), st.data())
def test_a_stream_that_is_cut_is_never_taken_for_the_whole(made: tuple[list[str], bytes], data: st.DataObject) -> None:
    _, body = made
    cut = body[: data.draw(st.integers(0, len(body.rstrip(b"\r\n")) - 1))]
    with pytest.raises(Unreadable):
        assemble(cut)


@given(stream(), st.data())
def test_however_the_bytes_came_they_are_the_same_answer(made: tuple[list[str], bytes], data: st.DataObject) -> None:
    _, body = made
    places = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    recording = Recording(ExchangeHead("POST", "/v1/chat/completions", [], 1.0), 2**20, Room(2**20))
    recording.response.add([body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)])
    assert b"".join(recording.response.pieces or ()) == body
    assert assemble(b"".join(recording.response.pieces or ())) == assemble(body)


@given(
    NOISE
    | st.binary(max_size=200)
    | stream()
    .map(lambda made: made[1])
    .flatmap(
        lambda body: st.integers(0, len(body)).flatmap(
            lambda at: NOISE.map(lambda noise: body[:at] + noise + body[at:])
        )
    )
)
def test_garbage_is_refused_and_never_raises_anything_else(body: bytes) -> None:
    list(events(body))
    try:
        answer = assemble(body)
    except Unreadable:
        return
    assert all(choice["finish_reason"] for choice in answer["choices"])


@given(
    JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=100),
    JSON.map(lambda value: json.dumps(value).encode()) | stream().map(lambda made: made[1]) | st.binary(max_size=100),
    st.sampled_from([b"application/json", b"text/event-stream", b"text/html", b""]),
    st.sampled_from([b"", b"gzip", b"br", b"zstd", b"deflate", b"x", b"gzip, br"]),
)
def test_any_exchange_is_a_call_or_the_reason_why_not(
    request: bytes, answer: bytes, kind: bytes, encoding: bytes
) -> None:
    exchange = Exchange(
        method="POST",
        path="/v1/chat/completions",
        request_headers=[],
        request_body=request,
        status=200,
        response_headers=[(b"content-type", kind), (b"content-encoding", encoding)],
        response_body=answer,
        started_at=0.0,
        first_byte_after=0.1,
        duration=0.2,
        error=None,
    )
    kept = ExchangeRedactor(Redactor([RedactRule(name="email")]), 2**20, parse_memory()).redact(exchange)
    if not isinstance(kept, NotCaptured):
        read_call(kept, Histories(Items()))


@given(st.binary(max_size=3000), st.integers(1, 2000))
def test_a_body_is_undone_within_its_limit(body: bytes, limit: int) -> None:
    packed = gzip.compress(body)
    if max(len(body), len(packed)) <= limit:
        assert decoded(packed, b"gzip", limit) == body
    else:
        with pytest.raises(Undecodable, match="too_large"):
            decoded(packed, b"gzip", limit)
