"""Redaction: a secret is gone wherever it stands and however the JSON is written, and JSON stays JSON."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from slipstream.redaction.redactor import Redactor
from slipstream.redaction.rules import RedactRule

RULES = [RedactRule(name=name) for name in ("api_key", "password", "email", "phone", "credit_card", "ip")]
REDACTOR = Redactor(RULES)
DIGITS = st.text("0123456789", min_size=1)
WORD = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
SECRETS = st.one_of(
    st.text(WORD, min_size=24, max_size=48).map(lambda text: f"sk-A1{text}"),
    st.text(WORD, min_size=36, max_size=36).map(lambda text: f"ghp_{text}"),
    st.text(WORD.upper(), min_size=16, max_size=16).map(lambda text: f"AKIA{text}"),
    st.text("abcdefghij", min_size=3, max_size=9).map(lambda text: f"{text}@{text}.example.com"),
    st.tuples(*[st.integers(1, 255)] * 4).map(lambda parts: ".".join(map(str, parts))),
    st.sampled_from(["4111 1111 1111 1111", "5555555555554444", "378282246310005"]),
    st.integers(10**9, 10**10 - 1).map(lambda number: f"+49 {number}"),
)
AROUND = st.text(st.sampled_from(list(" \n\t,;()[]{}<>!?'\"/你é\\=")), max_size=6)
"""What may stand beside a secret: a letter or a digit would make another word of it."""

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)


def shape(value: Any) -> Any:
    """The value without its strings and keys."""
    if isinstance(value, dict):
        return {"": [shape(child) for child in value.values()]}
    if isinstance(value, list):
        return [shape(child) for child in value]
    return "" if isinstance(value, str) else value


@given(SECRETS, AROUND, AROUND, st.booleans(), st.booleans())
def test_a_secret_is_gone_whatever_stands_beside_it(
    secret: str, before: str, after: str, escaped: bool, twice: bool
) -> None:
    text = f"{before} {secret} {after}"
    value: Any = {"messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}
    if twice:  # a tool call's arguments: JSON within a string
        value = {"arguments": json.dumps(value, ensure_ascii=escaped)}
    written = json.dumps(value, ensure_ascii=escaped).encode()
    for redacted in (
        REDACTOR.redact_json(value, written)[1],
        REDACTOR.redact_json(value)[1],
        json.dumps(REDACTOR.redact(value)).encode(),
    ):
        assert secret not in redacted.decode()
        assert secret.encode() not in redacted
        json.loads(redacted)


@given(JSON)
def test_json_stays_json_of_the_same_shape(value: Any) -> None:
    given_value = [value]
    before = json.dumps(given_value)
    redacted, text = REDACTOR.redact_json(given_value)
    assert json.loads(text) == redacted
    assert shape(redacted) == shape(given_value)
    assert json.dumps(given_value) == before, "what production gets is not touched"


@given(JSON)
def test_redacting_again_changes_nothing(value: Any) -> None:
    once = REDACTOR.redact([value])
    assert REDACTOR.redact(once) == once


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    assert isinstance(REDACTOR.redact([text])[0], str)
