"""The first words of a conversation are the same in each of its calls, in whichever way these are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.dialects.beginning import ENOUGH, Held, beginning
from slipstream.dialects.form import Dialect

CHAT, RESPONSES, MESSAGES = Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES

Message = dict[str, Any]

WRITERS: dict[str, Callable[[Any], bytes]] = {
    "json": lambda value: json.dumps(value).encode(),
    "compact": lambda value: json.dumps(value, separators=(",", ":")).encode(),
    "indented": lambda value: json.dumps(value, indent=2).encode(),
    "spread": lambda value: json.dumps(value, separators=(" ,\n ", " :\t")).encode(),
    "unescaped": lambda value: json.dumps(value, ensure_ascii=False).encode(),
    "sorted": lambda value: json.dumps(value, sort_keys=True).encode(),
    "msgspec": msgspec.json.encode,
}

TEXT = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    ['{"role": "user", "content": "no"}', '}, {"', '"},{"', '\\"}]}', "[[[", "\\", '"messages":[', "{{user}}", "é" * 40]
)


def text_of(dialect: Dialect, text: str, *, parts: bool) -> Any:
    kind = "input_text" if dialect is RESPONSES else "text"
    return [{"type": kind, "text": text}] if parts else text


def body_of(dialect: Dialect, messages: list[Message], **fields: Any) -> Message:
    return {"model": "m", ("input" if dialect is RESPONSES else "messages"): messages, **fields}


def words(dialect: Dialect, body: bytes) -> bytes | Held | None:
    return beginning(dialect, body, whole=True)


@given(
    dialect=st.sampled_from(Dialect),
    write=st.sampled_from(sorted(WRITERS)),
    instructions=st.lists(TEXT, max_size=2),
    first=TEXT.filter(bool),
    later=st.lists(TEXT, max_size=12),
    parts=st.booleans(),
    content_first=st.booleans(),
    long=st.sampled_from([0, 0, 30, 3000]),
    data=st.data(),
)
def test_each_call_of_a_conversation_has_the_same_first_words(
    dialect: Dialect, write: str, instructions: list[str], first: str, later: list[str], parts: bool,
    content_first: bool, long: int, data: st.DataObject,
) -> None:  # fmt: skip
    def message(role: str, text: str) -> Message:
        content = text_of(dialect, text, parts=parts)
        return {"content": content, "role": role} if content_first else {"role": role, "content": content}

    told = [message("system", text * (1 + long)) for text in instructions]
    asked = [message("user", first)]
    answers = [message(("assistant", "user")[turn % 2], text * (1 + long)) for turn, text in enumerate(later)]
    for turn in range(0, len(answers) + 1, 2):
        fields = data.draw(
            st.fixed_dictionaries(
                {}, optional={"temperature": st.floats(0, 2), "stream": st.booleans(), "user": TEXT, "metadata": TEXT}
            )
        )
        body = WRITERS[write](fields | body_of(dialect, told + asked + answers[:turn]) | {"tools": [{"text": "t"}] * 5})
        assert words(dialect, body) == first.encode()


@given(
    dialect=st.sampled_from([CHAT, MESSAGES]),
    texts=st.lists(TEXT, min_size=2, max_size=30),
    parts=st.booleans(),
    system=st.integers(0, 40_000),
    sizes=st.lists(st.integers(1, 90_000), min_size=1, max_size=8),
)
def test_a_part_of_a_body_says_what_the_whole_says_or_nothing(
    dialect: Dialect, texts: list[str], parts: bool, system: int, sizes: list[int]
) -> None:
    told: list[Message] = [{"role": "system", "content": '"},{" }' * (system // 7)}]
    talk = [
        {"role": ("user", "assistant")[turn % 2], "content": text_of(dialect, f"{turn}{text}" * 99, parts=parts)}
        for turn, text in enumerate(texts)
    ]
    body = json.dumps(body_of(dialect, told + talk, tools=[{"name": "x", "input": {}}] * 9)).encode()
    whole = words(dialect, body)
    assert whole == ("0" + texts[0]).encode() * 99 if texts[0] else b"0" * 99
    for size in sizes:
        assert beginning(dialect, body[:size], whole=False) in (whole, None)


def test_a_part_of_a_long_body_is_enough() -> None:
    talk = [{"role": ("user", "assistant")[turn % 2], "content": f"{turn} " + "x" * 900} for turn in range(200)]
    body = json.dumps(body_of(CHAT, talk)).encode()
    assert beginning(CHAT, body[:ENOUGH], whole=False) == talk[0]["content"].encode()
    assert beginning(CHAT, body[: len(body) - 1] + b"!", whole=True) == talk[0]["content"].encode()


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("dialect", "ways"),
    [
        (
            MESSAGES,
            [
                "hi",
                [{"type": "text", "text": "hi"}],
                [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
                [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}],
                [{"type": "image", "source": {"type": "url", "url": "u"}}, {"type": "text", "text": "hi"}],
            ],
        ),
        (RESPONSES, ["hi", [{"type": "input_text", "text": "hi"}]]),
    ],
)
def test_a_message_counts_by_its_text(dialect: Dialect, ways: list[Any]) -> None:
    bodies = [body_of(dialect, [{"id": at, "role": "user", "content": way}]) for at, way in enumerate(ways)]
    assert {words(dialect, json.dumps(body).encode()) for body in bodies} == {b"hi"}


@pytest.mark.parametrize(
    ("dialect", "body", "said"),
    [
        (RESPONSES, {"input": "hi"}, b"hi"),
        (RESPONSES, {"input": "h\u00e9\n"}, "h\u00e9\n".encode()),
        (RESPONSES, {"input": [{"type": "message", "role": "user", "content": "hi"}]}, b"hi"),
        (RESPONSES, {"input": [{"type": "function_call", "name": "f"}, {"role": "user", "content": "hi"}]}, b"hi"),
        (RESPONSES, {"input": "hi", "previous_response_id": None, "conversation": None}, b"hi"),
        (RESPONSES, {"input": "hi", "previous_response_id": "resp_1"}, Held(None)),
        (RESPONSES, {"input": "hi", "tools": [{"conversation": "c"}]}, b"hi"),
        (RESPONSES, {"conversation": "conv_1", "input": "hi"}, Held("conv_1")),
        (RESPONSES, {"input": "hi", "conversation": {"id": "conv_1"}}, Held("conv_1")),
        (RESPONSES, {"input": "hi", "conversation": {"id": 1}}, b"hi"),
        (MESSAGES, {"messages": [{"role": "user", "content": "hi"}], "thread": {"type": "continue"}}, b"hi"),
        (
            MESSAGES,
            {
                "messages": [{"role": "user", "content": "hi"}],
                "thread": {"type": "continue", "previous_message_id": "msg_1"},
            },
            Held(None),
        ),
        (CHAT, {"messages": [{"role": "system", "content": "only this"}]}, b"only this"),
        (CHAT, {"messages": [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "hi"}]}, b"hi"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, b'[{"type": "image_url"}]'),
        (CHAT, {"messages": [{"role": "user", "content": LONG}]}, LONG.encode()),
        (CHAT, {"messages": [{"role": "user"}]}, b""),
        (CHAT, {"messages": []}, b""),
        (CHAT, {"messages": "hi"}, b""),
        (CHAT, {"input": "hi"}, b""),
        (CHAT, [], b""),
    ],
)
def test_what_is_read_of_a_body(dialect: Dialect, body: Any, said: bytes | Held) -> None:
    assert words(dialect, json.dumps(body).encode()) == said


@given(dialect=st.sampled_from(Dialect), body=st.binary(max_size=200), whole=st.booleans())
def test_any_bytes_are_taken(dialect: Dialect, body: bytes, whole: bool) -> None:
    said = beginning(dialect, body, whole=whole)
    assert isinstance(said, bytes) if whole else said is None


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe{", b'{"messages":[{"role":"\\ud83d"}]}', b"[" * 100_000, b'{"messages":' + b"[" * 100_000,
        b'{"messages":[{"role":"user","content":' + b"[" * 100_000, b'{"a":' * 50_000,
        b'{"messages":[' + b'{"role":"x"},' * 20_000, b'{"input":"' + b"},{" * 50_000, b'"' * 100_000,
        b'{"messages":[{"content":"' + b'},{\\"' * 50_000 + b'"}]}',
    ],
)  # fmt: skip
def test_no_body_takes_long(dialect: Dialect, body: bytes) -> None:
    """By the work, not by the clock: a body is read at most a few times, whichever part of it is there."""
    read = 0

    def counted(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        def counting(text: bytes) -> Any:
            nonlocal read
            read += len(text)
            return decode(text)

        return counting

    from slipstream.dialects import beginning as module

    names = [name for name in vars(module) if name.startswith("_read_")]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(module, name, counted(getattr(module, name)))
        for whole in (True, False):
            beginning(dialect, body, whole=whole)
    assert read < 8 * len(body) + 100
