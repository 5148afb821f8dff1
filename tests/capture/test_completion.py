"""What becomes a call, and why the rest does not."""

from __future__ import annotations

import gzip
import json
import random
import time
import tracemalloc
import zlib
from typing import Any

import brotli
import pytest
import zstandard
from captured_chats import MAX_BODY, assistant, completion, event_stream, exchange, read_call, tool, tool_call, user

from slipstream.capture.completion import CapturedCall
from slipstream.capture.conversations import Conversations
from slipstream.dialects.body import NotCaptured
from slipstream.proxy.tap import Exchange

SSE = [(b"content-type", b"text/event-stream")]
JSON = [(b"content-type", b"application/json")]


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else []


def read(went_by: Exchange, max_body: int = MAX_BODY) -> CapturedCall:
    captured = read_call(went_by, max_body)
    assert isinstance(captured, CapturedCall), captured
    return captured


def test_a_plain_call_is_captured_as_it_was() -> None:
    request = {"model": "gpt-4o", "messages": [user("hi")], "temperature": 0, "a_field_of_tomorrow": [1]}
    answer = completion(assistant("hello"), service_tier="default", odd={"x": 1})
    call = read(exchange(request=request, answer=answer, started_at=5.0, duration=0.25))

    assert call.request == request
    assert call.answer == answer
    assert call.msg_id == "chatcmpl-1"
    assert (call.started_at, call.latency) == (5.0, 0.25)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"method": "GET"}, "not_a_chat"),
        ({"path": "/v1/embeddings"}, "not_a_chat"),
        ({"request": ["hi"]}, "not_a_chat"),
        ({"request": {"model": "gpt-4o", "messages": []}}, "not_a_chat"),
        ({"request": {"model": "gpt-4o", "messages": ["hi"]}}, "not_a_chat"),
        ({"request": {"model": "gpt-4o", "prompt": "hi"}}, "not_a_chat"),
        ({"request_headers": [(b"X-Slipstream-Select", b"Never")]}, "opted_out"),
        ({"request": {"messages": [user("hi")], "store": False}}, "opted_out"),
        ({"complete": False, "response_body": json.dumps(completion(assistant("hello"))).encode()[:-1]}, "incomplete"),
        ({"complete": False, "answer": completion(assistant("hello"), choices=[])}, "incomplete"),
        ({"complete": False, "request": {"messages": [user("hi")], "n": 2}}, "incomplete"),
        ({"complete": False, "status": None, "response_body": None}, "incomplete"),
        ({"complete": False, "request_body": None}, "incomplete"),
        ({"status": 500}, "status"),
        ({"status": None, "response_body": None}, "status"),
        ({"request_body": None}, "too_large"),
        ({"response_body": None}, "too_large"),
        ({"request_body": b'{"messages": "' + b"x" * MAX_BODY + b'"}'}, "too_large"),
        ({"request_body": b"{"}, "not_json"),
        ({"request_body": b'{"messages": [{"role": "user"}], "temperature": NaN}'}, "not_json"),
        ({"request_body": b'{"messages": [{"role": "user"}], "temperature": -1e999}'}, "not_json"),
        ({"request_body": b"[" * 100_000}, "too_large"),
        ({"request": {"messages": [user(nested(99))]}}, "too_large"),
        ({"request_body": b'{"messages": [' + b"[]," * 300_000 + b"[]]}"}, "too_many_values"),
        ({"request_body": b'{"messages": [{"role": "user"}], "x": [' + b"[]," * 300_000 + b"[]]}"}, "too_many_values"),
        ({"response_body": b'{"choices": [' + b"[]," * 250_001 + b"1]}"}, "too_many_values"),
        ({"request_body": b"\xff\xfe\xfd"}, "not_json"),
        ({"response_body": b"<html>", "response_headers": JSON}, "not_json"),
        ({"response_body": json.dumps(completion(assistant("hello"))).encode()[:-1]}, "not_json"),
        ({"answer": {"error": {"message": "overloaded"}}}, "no_answer"),
        ({"answer": {"choices": []}}, "no_answer"),
        ({"answer": {"choices": [{"text": "a completion of old"}]}}, "no_answer"),
        ({"answer": []}, "no_answer"),
        ({"request_headers": [(b"content-encoding", b"compress")]}, "encoding"),
        ({"request_headers": [(b"content-encoding", b"gzip")]}, "encoding"),
        (
            {"response_body": gzip.compress(b"{}")[:-1], "response_headers": [(b"content-encoding", b"gzip")]},
            "encoding",
        ),
        ({"response_body": b"garbage", "response_headers": [(b"content-encoding", b"zstd")]}, "encoding"),
    ],
)
def test_what_is_no_whole_chat_is_not_captured(fields: dict[str, Any], reason: str) -> None:
    assert read_call(exchange(**fields), MAX_BODY) == NotCaptured(reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/v1/deployments/x/chat/completions", "/v1/openai/chat/completions"])
def test_azure_paths_are_chats(path: str) -> None:
    assert read(exchange(path=path)).msg_id == "chatcmpl-1"


def test_a_deep_schema_is_captured() -> None:
    request = {"messages": [user("hi")], "tools": nested(90)}
    assert read(exchange(request=request)).request == request


@pytest.mark.parametrize("msg_id", [None, 5, "", "x" * 257, "half a pair \ud800"])
def test_an_id_that_the_store_cannot_hold_is_none(msg_id: Any) -> None:
    answer = {**completion(assistant("hello")), "id": msg_id}
    assert read(exchange(response_body=json.dumps(answer).encode())).msg_id is None


def test_store_true_is_captured() -> None:
    assert read(exchange(request={"messages": [user("hi")], "store": True})).request["store"] is True


def _raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("name", "compress"),
    [
        (b"gzip", gzip.compress),
        (b"GZIP", lambda data: gzip.compress(data[:10]) + gzip.compress(data[10:])),
        (b"deflate", zlib.compress),
        (b"deflate", _raw_deflate),
        (b"zstd", zstandard.ZstdCompressor().compress),
        (b"gzip, identity, deflate", lambda data: zlib.compress(gzip.compress(data))),
    ],
)
def test_compressed_bodies_are_read(name: bytes, compress: Any) -> None:
    answer = completion(assistant("Grüße, 你好"))
    request = {"model": "m", "messages": [user("ça va?")]}
    call = read(
        exchange(
            request_headers=[(b"content-encoding", name)],
            request_body=compress(json.dumps(request).encode()),
            response_headers=[*JSON, (b"Content-Encoding", name)],
            response_body=compress(json.dumps(answer).encode()),
        )
    )
    assert call.request == request
    assert call.answer == answer


def test_brotli_is_read() -> None:
    body = json.dumps(completion(assistant("hello"))).encode()
    length = len(body) - 1  # a brotli stream of one stored block: RFC 7932, section 9.2, window of 22 bits
    header = 0b1011 | length << 7 | 1 << 23
    stored = header.to_bytes(3, "little") + body + b"\x03"
    got = read_call(exchange(response_body=stored, response_headers=[*JSON, (b"content-encoding", b"br")]), MAX_BODY)
    assert isinstance(got, CapturedCall)
    assert got.answer["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("name", "bomb"),
    [
        (b"gzip", gzip.compress(bytes(40_000_000), 9)),
        (b"gzip, gzip", gzip.compress(gzip.compress(bytes(40_000_000), 9))),
        (b"deflate", zlib.compress(bytes(40_000_000), 9)),
        (b"zstd", zstandard.ZstdCompressor(level=3).compress(bytes(40_000_000))),
        (b"br", brotli.compress(bytes(40_000_000), quality=1)),
    ],
)
def test_a_decompression_bomb_is_refused_before_it_unfolds(name: bytes, bomb: bytes) -> None:
    went_by = exchange(response_body=bomb, response_headers=[(b"content-encoding", name)])
    tracemalloc.start()
    try:
        assert read_call(went_by, MAX_BODY) == NotCaptured("too_large")
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX_BODY
    finally:
        tracemalloc.stop()


def test_a_body_of_very_many_compressed_parts_takes_no_time() -> None:
    parts = gzip.compress(b"") * (MAX_BODY // 20)
    went_by = exchange(response_body=parts, response_headers=[(b"content-encoding", b"gzip")])
    began = time.process_time()
    assert read_call(went_by, MAX_BODY) == NotCaptured("encoding")
    assert time.process_time() - began < 1


def test_a_body_of_exactly_the_limit_is_captured() -> None:
    went_by = exchange()
    assert went_by.request_body is not None
    assert went_by.response_body is not None
    limit = max(len(went_by.request_body), len(went_by.response_body))
    assert read(went_by, limit)
    assert read_call(went_by, limit - 1) == NotCaptured("too_large")


def test_two_users_have_two_principals_and_none_holds_a_secret() -> None:
    def principal(key: bytes, user_field: str | None, header: bytes = b"authorization") -> bytes:
        request = {"messages": [user("hi")], "user": user_field}
        call = read(exchange(request=request, request_headers=[(header, key)]))
        assert key not in repr(call).encode()
        return call.principal

    principals = [
        principal(b"Bearer sk-a", None),
        principal(b"Bearer sk-b", None),
        principal(b"Bearer sk-a", "ann"),
        principal(b"Bearer sk-a", "bob"),
        principal(b"Bearer sk-a", None, header=b"api-key"),
    ]
    assert len(set(principals)) == len(principals)
    assert principal(b"Bearer sk-a", "ann") == principal(b"Bearer sk-a", "ann", header=b"Authorization")


def test_the_digest_is_that_of_the_attempt_before() -> None:
    first = read(exchange(request_headers=[(b"x-stainless-retry-count", b"0")]))
    again = read(exchange(request_headers=[(b"x-stainless-retry-count", b"2")], answer=completion(assistant("hey"))))
    other = read(exchange(request={"model": "gpt-4o", "messages": [user("ho")]}))
    in_a_session = read(exchange(request_headers=[(b"x-slipstream-session-id", b"s")]))

    assert (first.retry, again.retry, other.retry) == (0, 2, 0)
    assert first.digest == again.digest
    assert len({first.digest, other.digest, in_a_session.digest}) == 3
    assert read(exchange(request_headers=[(b"x-stainless-retry-count", b"soon")])).retry == 0


@pytest.mark.slow
def test_no_broken_exchange_makes_it_fail() -> None:
    """Bytes flipped, cut and repeated, values replaced at random: a call that has its place, or a reason."""
    dice = random.Random(7)
    stream = event_stream(
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [tool_call("t", "f", x=1) | {"index": 0}]}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "logprobs": {"content": []}, "finish_reason": "stop"}]},
    )
    messages = [user("hi"), assistant(None, tool_call("t", "f", x=1)), tool("t", "2")]
    request = json.dumps({"messages": messages, "user": "ann"}).encode()
    values = [b"null", b"1", b'""', b"[]", b"{}", b"[[]]", b'"\\ud800"']

    def damaged(data: bytes) -> bytes:
        at, end = sorted((dice.randrange(len(data)), dice.randrange(len(data))))
        kind = dice.randrange(4)
        if kind == 0:
            return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
        if kind == 1:
            return data[:at] + data[min(end, at + 20) :]
        if kind == 2:
            return data[:end] + data[at:]
        start = data.find(b":", at) + 1
        stop = data.find(b",", start)
        return data[:start] + dice.choice(values) + data[stop:]

    outcomes = set()
    placed = Conversations(limit=100)
    for _ in range(4000):
        went_by = exchange(
            request_body=damaged(request) if dice.random() < 0.5 else request,
            response_body=damaged(stream) if dice.random() < 0.7 else stream,
            response_headers=SSE,
            request_headers=[(b"x-slipstream-metadata", damaged(b'{"a": 1, "b": [2]}'))],
        )
        got = read_call(went_by, MAX_BODY)
        if isinstance(got, CapturedCall):
            placed.place(got)
        outcomes.add(got.reason if isinstance(got, NotCaptured) else "call")
    assert {"call", "not_json", "truncated_stream"} <= outcomes
