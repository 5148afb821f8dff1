"""What `x-slipstream-...` headers say, and what becomes of bad ones."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.capture.headers import SlipstreamHeaders, read_headers


def test_all_headers() -> None:
    headers = [
        (b"X-Slipstream-Session-Id", b" chat-7 "),
        (b"x-slipstream-task-id", b"t" * 64),
        (b"x-slipstream-mark", b"vip, hard,,vip"),
        (b"x-slipstream-mark", b"math"),
        (b"x-slipstream-metadata", b'{"reference": "4"}'),
        (b"x-slipstream-select", b"never"),
        (b"authorization", b"Bearer sk"),
    ]
    assert read_headers(headers) == SlipstreamHeaders(
        "chat-7", "t" * 64, ("vip", "hard", "math"), {"reference": "4"}, never=True
    )


def test_none_at_all() -> None:
    assert read_headers([(b"accept", b"*/*")]) == SlipstreamHeaders()


@pytest.mark.parametrize(
    ("header", "value", "problem"),
    [
        (b"session-id", b"s" * 65, "session_id"),
        (b"session-id", b"a\x01b", "session_id"),
        (b"task-id", "ä".encode() * 65, "task_id"),
        (b"mark", b"x" * 65, "mark"),
        (b"metadata", b"{", "metadata"),
        (b"metadata", b'["a"]', "metadata"),
        (b"metadata", b'{"reward": NaN}', "metadata"),
        (b"metadata", b'{"reward": 1e999}', "metadata"),
        (b"metadata", b'{"reference": "\\ud800"}', "metadata"),
        (b"select", b"always", "select"),
    ],
)
def test_a_bad_header_is_left_out_and_named(header: bytes, value: bytes, problem: Any) -> None:
    assert read_headers([(b"x-slipstream-" + header, value)]) == SlipstreamHeaders(problems=(problem,))


def test_good_labels_beside_a_bad_one_stay() -> None:
    assert read_headers([(b"x-slipstream-mark", b"ok,a\tb")]) == SlipstreamHeaders(mark=("ok",), problems=("mark",))


@pytest.mark.parametrize(
    "raw", ['{"reference": "Köln €"}'.encode(), b'{"reference": "K\\u00f6ln \\u20ac"}'], ids=["utf-8", "escaped"]
)
def test_metadata_beyond_ascii(raw: bytes) -> None:
    assert read_headers([(b"x-slipstream-metadata", raw)]).metadata == {"reference": "Köln €"}


def test_metadata_in_latin_1() -> None:
    raw = '{"reference": "Köln"}'.encode("latin-1")
    assert read_headers([(b"x-slipstream-metadata", raw)]).metadata == {"reference": "Köln"}
