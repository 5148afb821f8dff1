"""The fast reading of JSON gives what the standard library's gives, less what is no JSON."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.jsontext import from_json, to_json

TEXTS = [
    b"null", b" [1] \n", b"-0", b"-0.0", b"1E5", b"1e-400", b"1e308", b"0.1", b"123456789012345678901234567890.5",
    b"18446744073709551616", b"-" + b"9" * 300, b'{"a": 1, "a": 2}', b'"\\/\\u0041\\n"', b'"\\ud83d\\ude00"',
    b'"\\ud800"', b'"\\ud800\\u0041"', b'"\xed\xa0\x80"', b'"a\x7f"', b"\xef\xbb\xbf[1]",
    '{"é": "你"}'.encode("utf-16"), b"[" * 90 + b"]" * 90,
]  # fmt: skip
BAD = [
    b"", b"{", b"[1,]", b"01", b"1.", b".5", b"+1", b"NaN", b"-Infinity", b"1e999", b"-1e999", b'"\xff"', b'"a\x01"',
    b'"\\x"', b'"\\u12"', b"1 2", b"\x0c1", b"'a'", b"{1: 2}", b"1" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_the_value_is_the_same(text: bytes) -> None:
    value, _ = from_json(text)
    assert _exactly(value) == _exactly(json.loads(text))
    assert _exactly(from_json(to_json(value))[0]) == _exactly(value)


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    assert _outcome(from_json, text) == "refused"


def test_plain_text_is_utf8_that_reads_the_same_again() -> None:
    assert from_json('{"é": "你"}'.encode()) == ({"é": "你"}, True)
    assert from_json('{"é": "你"}'.encode("utf-16")) == ({"é": "你"}, False)
    assert from_json(b'"\\ud800"') == ("\ud800", False)


@pytest.mark.parametrize("seed", range(5))
def test_damaged_texts_are_read_or_refused_as_ever(seed: int) -> None:
    dice = random.Random(seed)
    whole = json.dumps({"n": [1, -2.5, 1e22, 10**30, True, None], "s": 'é\n"\\ \ud83d\ude00 \ud800', "o": {"": []}})
    for _ in range(2000):
        text = bytearray(whole.encode("utf-8", "surrogatepass"))
        for _ in range(dice.randint(1, 3)):
            text[dice.randrange(len(text))] = dice.choice(b'0123456789eE.-+"\\u{}[],: \n\xff\xc3')
        assert _outcome(lambda given: from_json(given)[0], bytes(text)) == _outcome(_by_the_library, bytes(text))


def _outcome(read: Callable[[bytes], Any], text: bytes) -> str:
    try:
        return _exactly(read(text))
    except ValueError:
        return "refused"


def _exactly(value: Any) -> str:
    """With the types of numbers, and the order of keys."""
    return repr(value)


def _by_the_library(text: bytes) -> Any:
    return _finite(json.loads(text))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("not a JSON number")
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(child)
    return value
