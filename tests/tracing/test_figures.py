"""The few figures that are read of a body for its span, of whatever came as one."""

from __future__ import annotations

import json
from typing import Any

from slipstream.dialects.usage import Figures, figures_of


def stream(*said: Any, done: bool = True) -> bytes:
    events = b"".join(b"data: %b\n\n" % (one if isinstance(one, bytes) else json.dumps(one).encode()) for one in said)
    return events + b"data: [DONE]\n\n" if done else events


def chunk(**fields: Any) -> dict[str, Any]:
    return {"id": "c-1", "model": "m-1", "choices": [], **fields}


def test_figures_are_found_in_any_dialect_and_what_is_odd_counts_as_missing() -> None:
    ended = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    cached = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}}
    response = {"id": "r-1", "model": "m-1", "status": "completed", "output": [{"any": ["thing"]}]}
    tokens = {"input_tokens": 7, "output_tokens": 2}
    for answer, streamed, expected in (
        (json.dumps(chunk(choices=ended, usage=cached)).encode(), False, ("m-1", "c-1", ("stop",), 7, 2, 5)),
        (stream(chunk(), chunk(choices=ended), chunk(usage=cached)), True, ("m-1", "c-1", ("stop",), 7, 2, 5)),
        (stream(chunk(), b"{broken", b"[]", done=False), True, ("m-1", "c-1", (), None, None, None)),
        (json.dumps({**response, "usage": tokens}).encode(), False, ("m-1", "r-1", ("completed",), 7, 2, None)),
        (
            stream(
                {"type": "response.created", "response": {**response, "status": "in_progress", "usage": None}},
                {"type": "response.output_text.delta", "delta": "a word"},
                {"type": "response.completed", "response": {**response, "usage": tokens}},
                done=False,
            ),
            True,
            ("m-1", "r-1", ("completed",), 7, 2, None),
        ),
        (
            stream(
                {"type": "message_start", "message": {"id": "a-1", "model": "m-1", "usage": {"input_tokens": 7}}},
                {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a word"}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
                done=False,
            ),
            True,
            ("m-1", "a-1", ("end_turn",), 7, 2, None),
        ),
        (b'{"id": 7, "model": "m-1"}', False, ("m-1", None, (), None, None, None)),
        (
            b'{"id": "c", "model": [], "choices": [1, {"finish_reason": 2}, {"finish_reason": "stop"}], "usage": '
            b'{"prompt_tokens": 7, "completion_tokens": "2", "prompt_tokens_details": {"cached_tokens": "5"}}}',
            False,
            (None, "c", ("stop",), 7, None, None),
        ),
        (
            stream(chunk(id=None, usage="?"), {"choices": [], "delta": [], "usage": {"prompt_tokens": 7}}, done=False),
            True,
            ("m-1", None, (), 7, None, None),
        ),
        (b'{"id": "c", "usage": [' + b"[" * 100_000, False, (None, None, (), None, None, None)),
        (b'"text"', False, (None, None, (), None, None, None)),
        (b"[" * 100_000, False, (None, None, (), None, None, None)),
        (b"\xff", True, (None, None, (), None, None, None)),
        (None, False, (None, None, (), None, None, None)),
    ):
        assert figures_of(b'{"model": "asked"}', answer, streamed=streamed) == Figures("asked", *expected), answer
    for request in (None, b"", b"{", b'{"model": ["m"]}', b'{"messages": []}'):
        assert figures_of(request, None, streamed=False) == Figures()
