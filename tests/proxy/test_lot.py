"""The lot of a conversation is the same for each of its calls, and spread evenly over many."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.access.foreign_pages import telling
from slipstream.dialects.form import Dialect
from slipstream.http.headers import Headers, own_fields
from slipstream.proxy.lot import Lots, NoLot
from slipstream.selection import hash_fraction

LOTS = Lots(["x-user-id", "x-org"])
KEY = (b"authorization", b"Bearer sk-1")


def chat(*texts: str, **fields: Any) -> bytes:
    messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def lot(
    body: bytes, *headers: tuple[bytes, bytes], whole: bool = True, tenant: str = "default", key: str | None = None,
    dialect: Dialect = Dialect.CHAT,
) -> float | NoLot:  # fmt: skip
    return LOTS.of(dialect, list(headers), body, whole, tenant, key)


@pytest.mark.parametrize(
    ("headers", "body", "known"),
    [
        ([(b"x-slipstream-session-id", b"s-1")], b"", 0.5211303311189238),
        ([(b"x-slipstream-task-id", b"t-1")], b"", 0.8194571157678608),
        ([(b"x-user-id", b"u-1")], b"", 0.17323048686899245),
        ([KEY], chat("hello"), 0.6030560414030436),
    ],
    ids=["session", "task", "user", "words"],
)
def test_lots_stay_the_same_from_release_to_release(headers: Headers, body: bytes, known: float) -> None:
    """In other words: sidecars of two releases leave out the same conversations while one replaces the other."""
    assert lot(body, *headers) == known


def test_what_decides() -> None:
    session, task, user = (
        (b"x-slipstream-session-id", b"a"), (b"x-slipstream-task-id", b"a"), (b"x-user-id", b"a"),
    )  # fmt: skip
    first, second = chat("one"), chat("two")
    assert lot(first, session, task, user) == lot(second, session, KEY) == lot(b"", session, whole=False)
    assert lot(first, task, user) == lot(second, task, KEY) == lot(b"", task, whole=False)
    assert lot(first, user, KEY) == lot(second, user) == lot(b"", user, whole=False)
    assert lot(first, KEY) == lot(chat("one", "hello", "two", temperature=1), KEY) != lot(second, KEY)
    assert len({lot(first, *some) for some in ([session], [task], [user], [KEY], [])}) == 5, "one name is not another"
    assert lot(first, user, (b"x-org", b"b")) != lot(first, user) != lot(first, (b"x-org", b"a"))
    both = user, (b"x-org", b"b")
    assert lot(first, *both) == lot(first, *reversed(both)) != lot(first, (b"x-user-id", b"b"), (b"x-org", b"a"))
    assert lot(first, (b"X-User-Id", b" a ")) == lot(first, user), "however it is spelt"
    assert lot(first, (b"x-slipstream-session-id", b" ")) == lot(first), "a header that says nothing"


@pytest.mark.parametrize("headers", [[(b"x-slipstream-session-id", b"a")], [(b"x-user-id", b"a")], [KEY]])
def test_tenants_have_lots_of_their_own(headers: Headers) -> None:
    assert lot(chat("one"), *headers) != lot(chat("one"), *headers, tenant="other")


def test_callers_are_told_apart_by_their_words_and_keys() -> None:
    callers = [lot(chat("one"), (name, b"sk-2")) for name in (b"authorization", b"x-api-key")]
    assert callers[0] == callers[1] != lot(chat("one"), KEY)
    assert lot(chat("one"), key="mine") != lot(chat("one"), key="yours") != lot(chat("one"))


def test_what_has_no_lot() -> None:
    assert lot(b'{"mess', whole=False) is NoLot.MORE
    assert lot(chat("one"), (b"Content-Encoding", b"gzip")) is NoLot.COMPRESSED
    assert lot(chat("one"), (b"content-encoding", b"identity")) == lot(chat("one"))
    held = b'{"input": "hi", "previous_response_id": "resp_1"}'
    assert lot(held, dialect=Dialect.RESPONSES) is NoLot.HELD
    for named in (b"x-slipstream-session-id", b"x-user-id"):
        assert isinstance(lot(held, (named, b"a"), (b"content-encoding", b"zstd"), dialect=Dialect.RESPONSES), float)


def test_a_conversation_of_the_provider_has_the_lot_of_its_id() -> None:
    bodies = [
        b'{"input": "hi", "conversation": "conv_1"}',
        b'{"conversation": {"id": "conv_1"}, "input": [{"type": "function_call_output", "output": "x"}]}',
    ]
    assert len({lot(body, dialect=Dialect.RESPONSES) for body in bodies}) == 1


@pytest.mark.parametrize("value", [b"never", b"nevre", b""])
def test_who_refuses_has_none(value: bytes) -> None:
    assert lot(chat("one"), (b"X-Slipstream-Capture", value), (b"x-slipstream-session-id", b"a")) is NoLot.REFUSED
    assert lot(chat("one"), (b"x-slipstream-select", b"Never")) is NoLot.REFUSED
    assert isinstance(lot(chat("one"), (b"x-slipstream-select", b"always")), float)


@pytest.mark.parametrize("named", [b"x-slipstream-session-id", b"x-user-id", b"x-other"])
def test_many_conversations_are_spread_evenly_and_apart_from_other_shares(named: bytes) -> None:
    names = [f"session {number}" for number in range(10_000)]
    lots = [lot(chat(name), (named, name.encode())) for name in names]
    for rate in (0.01, 0.1, 0.5, 0.9):
        below = sum(one < rate for one in lots)
        assert abs(below - rate * 10_000) < 4 * (10_000 * rate * (1 - rate)) ** 0.5
    both = sum(one < 0.5 and hash_fraction(name, "sampling") < 0.5 for one, name in zip(lots, names, strict=True))
    assert abs(both - 2500) < 4 * (10_000 * 0.25 * 0.75) ** 0.5


@given(
    headers=st.lists(
        st.tuples(st.sampled_from([b"x-user-id", b"authorization", b"content-encoding", b"x"]), st.binary(max_size=20))
    ),
    body=st.binary(max_size=60),
    dialect=st.sampled_from(Dialect),
    whole=st.booleans(),
)
def test_any_request_is_taken(headers: Headers, body: bytes, dialect: Dialect, whole: bool) -> None:
    found = lot(body, *headers, dialect=dialect, whole=whole)
    assert isinstance(found, NoLot) or 0 <= found < 1


def test_long_names_of_header_fields_are_not_kept() -> None:
    """Any caller can send thousands of other ones, of up to `limits.header_bytes` each."""
    fields = [(b"x-%d-" % number + b"a" * 100, b"") for number in range(100)]
    before = [sys.getrefcount(name) for name, _ in fields]
    LOTS.of(Dialect.CHAT, fields, b"{}", True, "default", None)
    own_fields(fields)
    telling(fields)
    assert [sys.getrefcount(name) for name, _ in fields] == before
