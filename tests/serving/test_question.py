"""The splice of the lane's model into a request: certain to the byte, or not made."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.serving.question import Question, question_of

MODEL = 'kept/"8"é'
MESSAGES = '"messages":[{"role":"user","content":"hi"}]'


def spliced(body: bytes) -> bytes | None:
    question = question_of(body, None)
    return question.of(MODEL) if isinstance(question, Question) else None


def allowed(*names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}


def chat(text: str) -> bytes:
    return ("{" + text + "," + MESSAGES + "}").encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"model":"m"', '"model":NEW'),
        ('"model" : \r\n\t "m" ', '"model" : \r\n\t NEW '),
        ('"model":""', '"model":NEW'),
        ('"model":"a\\"b\\\\"', '"model":NEW'),
        ('"model":"openai\\/gpt"', '"model":NEW'),
        ('"model":"model"', '"model":NEW'),
        ('"user":"model","model":"m"', '"user":"model","model":NEW'),
        ('"metadata":{"model":"x"},"model":"m"', '"metadata":{"model":"x"},"model":NEW'),
        ('"model":"m","metadata":{"model":"x","a":[{"model":"y"}]}', None),
        ('"user":"\\"model","model":"m"', '"user":"\\"model","model":NEW'),
        ('"user":"\\"model\\":\\"x\\"","model":"m"', '"user":"\\"model\\":\\"x\\"","model":NEW'),
        ('"metadata":{"x\\"model":"y"},"model":"m"', '"metadata":{"x\\"model":"y"},"model":NEW'),
        ('"user":"é","model":"m"', '"user":"é","model":NEW'),
        ('"user":"\\u00e9","model":"m"', '"user":"\\u00e9","model":NEW'),
    ],
)
def test_nothing_but_the_models_name_changes(before: str, after: str | None) -> None:
    after = after or before.replace('"model":"m"', '"model":NEW')
    assert spliced(chat(before)) == chat(after.replace("NEW", json.dumps(MODEL, ensure_ascii=False)))


@pytest.mark.parametrize(
    "body",
    [
        chat('"model":"a","model":"b"'),
        chat('"model":"a","metadata":{"model":"x"},"model":"b"'),
        chat('"model":5,"model":"b"'),
        chat('"model":null,"model":"b"'),
        chat('"model":{"model":"a"},"model":"b"'),
        chat('"model":"a","mod\\u0065l":"b"'),
        chat('"mod\\u0065l":"a","model":"b"'),
        chat('"mod\\u0065l":"a"'),
        chat('"\\u006Dodel":"a","model":"b"'),
        chat('"model":5'),
        chat('"model":null'),
        chat('"metadata":{"model":"x"}'),
        chat('"Model":"a"'),
        b"",
        b"[]",
        b"null",
        b'"model"',
        b"\xef\xbb\xbf" + chat('"model":"m"'),
        chat('"model":"m"') + b" {}",
        chat('"model":"m"')[:-1],
        chat('"model":"m"').replace(b"hi", b"\xff"),
        chat('"model":"m"').replace(b"hi", b"\xc3"),
        chat('"model":"m"').replace(b"hi", b"\xed\xa0\x80"),
        chat('"model":"m"').replace(b"hi", b"\x01"),
        chat('"model":"m"').decode().encode("utf-16"),
        chat('"model":"m","temperature":NaN'),
        chat('"model":"m"/**/'),
        chat('"model":"m","metadata":' + "[" * 20_000 + "]" * 20_000),
        chat('"model":"m","metadata":[' + ",".join(['{"model":"x"}'] * 40) + "]"),
        b'{"model":"m","messages":[]}',
        b'{"model":"m"}',
    ],
)
def test_where_it_is_not_certain_the_request_is_not_for_the_lane(body: bytes) -> None:
    assert spliced(body) is None


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("model") | st.just('"model"'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", 'x"model']), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None, database=None)
@given(
    st.permutations(["model", "messages", "metadata", "tools", "user"]),
    JSON,
    st.text(),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_the_spliced_request_says_the_same_but_for_the_model(
    order: list[str], value: Any, name: str, ascii_only: bool, indent: int | None
) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": value}}]
    fields = {
        "model": name,
        "messages": [{"role": "user", "content": name}],
        "metadata": value,
        "tools": tools,
        "user": value,
    }
    asked = {key: fields[key] for key in order}
    try:
        body = json.dumps(asked, ensure_ascii=ascii_only, indent=indent).encode()
    except UnicodeEncodeError:
        return
    changed = spliced(body)
    if changed is None:
        assert body.count(b'"model"') > 16 or b"\\u00" in body.lower() or "\\ud" in body.decode().lower()
    else:
        assert json.loads(changed) == {**asked, "model": MODEL}


def test_no_more_of_a_body_is_read_than_others_can_wait_for() -> None:
    """One event loop carries all users of a worker: sixteen readings of a megabyte would hold them up."""
    text = "x" * 500_000
    for keys, taken in ((1, True), (5, True), (12, False)):
        fields = {"model": "prod", "messages": [{"role": "user", "content": text}], "metadata": [{"model": "x"}] * keys}
        assert (spliced(json.dumps(fields).encode()) is not None) is taken


@settings(derandomize=True, deadline=None, database=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_taken(body: bytes) -> None:
    assert spliced(body) is None


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, True),
        ({"tools": [{"type": "web_search"}]}, False),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": allowed("f", "f")}, True),
        ({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": allowed("g")}, False),
        ({"tool_choice": allowed("f")}, False),
        ({"tool_choice": "auto"}, True),
        ({"n": 1, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5}, True),
        ({"n": 2}, False),
        ({"store": False}, True),
        ({"store": True}, False),
        ({"logprobs": True}, False),
        ({"modalities": ["text", "audio"]}, False),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, False),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, False),
        ({"messages": [{"role": "user", "content": []}]}, False),
        ({"messages": [{"role": "user", "content": 5}]}, False),
        ({"messages": [{"role": "assistant", "content": None, "audio": {"id": "a"}}]}, False),
        ({"messages": [{"role": "assistant", "content": None, "audio": None, "refusal": None}]}, True),
        ({"messages": [{"role": "narrator", "content": "hi"}]}, False),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                    },
                    {"role": "tool", "tool_call_id": "1", "content": "5"},
                ]
            },
            True,
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]}]}, False),
    ],
)
def test_what_a_lane_can_serve(fields: dict[str, Any], fits: bool) -> None:
    asked = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    assert (spliced(json.dumps(asked).encode()) is not None) is fits


def test_the_lane_is_shown_the_allowed_tools_alone() -> None:
    f, g = ({"type": "function", "function": {"name": name, "parameters": {"model": 10**30}}} for name in "fg")
    asked = {"temperature": 1.50, "tools": [f, g], "messages": [{"role": "user", "content": "\u00e9"}], "model": "m"}
    body = json.dumps({**asked, "tool_choice": allowed("g")}, indent=1).encode()
    changed = spliced(body)
    assert changed is not None
    assert json.loads(changed) == {**asked, "model": MODEL, "tools": [g], "tool_choice": "required"}
    assert spliced(b'{"model": "x",' + body[1:]) is None, "readers differ in which of the models counts"


def test_a_prompt_that_the_lane_has_no_room_for() -> None:
    body = chat('"model":"m","max_completion_tokens":100')
    tokens = len(body) // 3 + 100
    assert isinstance(question_of(body, tokens), Question)
    assert question_of(body, tokens - 1) == "context"
