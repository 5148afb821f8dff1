"""A request's text is split at its list of messages, and put together again byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.dialects.elements import split

USER, ASSISTANT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": 'a "quoted" }, { text é'}
STYLES: list[dict[str, Any]] = [
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"ensure_ascii": False},
    {"indent": "\t"},
]


@pytest.mark.parametrize("style", STYLES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_way_to_write_json_is_split_at_its_messages(style: dict[str, Any], count: int) -> None:
    messages = [USER, ASSISTANT, USER, {"role": "user", "content": [{"type": "text", "text": "x"}]}, USER][:count]
    text = json.dumps({"model": "m", "messages": messages, "tools": [{"type": "function"}]}, **style).encode()
    found = split(text, "messages")
    assert found is not None
    assert [json.loads(bytes(element)) for element in found.elements] == messages
    assert found.frame.filled(list(map(bytes, found.elements))) == text
    assert json.loads(found.frame.empty) == {"model": "m", "messages": [], "tools": [{"type": "function"}]}


def test_the_separator_of_one_message_is_that_of_more() -> None:
    for separators in ((",", ":"), (", ", ": ")):
        one, two = (
            split(json.dumps({"model": "m", "messages": some}, separators=separators).encode(), "messages")
            for some in ([USER], [USER, USER])
        )
        assert one is not None
        assert two is not None
        assert one.frame == two.frame


def test_the_list_may_have_another_name() -> None:
    found = split(b'{"input":[{"a":1},"b"],"messages":[]}', "input")
    assert found is not None
    assert list(map(bytes, found.elements)) == [b'{"a":1}', b'"b"']


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages":[]}',
        b'{"messages":null}',
        b'{"messages":"a text"}',
        b'{"messages":{"0":1}}',
        b'{"messages":[1,2],"messages":"last"}',
        b'{"messages":[1 ,2,3]}',  # no one separator
        b'{"messages":[1,2',
        b'\xef\xbb\xbf{"messages":[1]}',
        b'{"messages":["\\ud800"]}',
        json.dumps({"messages": [USER]}).encode("utf-16"),
    ],
)
def test_what_cannot_be_put_together_again_is_not_split(text: bytes) -> None:
    assert split(text, "messages") is None


def test_the_text_of_a_message_elsewhere_in_the_request_is_not_taken_for_it() -> None:
    text = b'{"metadata":[{"role":"user"},{"role":"user"}],"messages":[{"role":"user"},{"role":"tool"}]}'
    found = split(text, "messages")
    assert found is None or found.frame.filled(list(map(bytes, found.elements))) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(_JSON, min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(["model", "tools", "metadata"]), _JSON),
    st.sampled_from(STYLES),
)
def test_what_is_split_is_the_same_text_again(
    elements: list[Any], others: dict[str, Any], style: dict[str, Any]
) -> None:
    text = json.dumps({**others, "messages": elements, "z": elements}, **style).encode("utf-8", "surrogatepass")
    found = split(text, "messages")
    if found is not None:
        assert found.frame.filled(list(map(bytes, found.elements))) == text
