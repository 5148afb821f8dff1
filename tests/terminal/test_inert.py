"""Text of others that a terminal cannot obey."""

from __future__ import annotations

import json
import time
import unicodedata

from slipstream.terminal.conversation import said
from slipstream.terminal.cut import Cut
from slipstream.terminal.inert import inert, json_text


def test_each_character_that_is_no_plain_text_becomes_an_escape() -> None:
    for text, shown in (
        ("plain text, 中文 ｆｕｌｌ, é e\u0301, 👩\u200d💻, نمی\u200cخواهم", None),
        ("\x1b[31m\x9b2J\x07\x00\x7f", r"\x1b[31m\x9b2J\x07\x00\x7f"),
        ("a\u202eb\u2066c\u2069\u200e\u061c", r"a\u202eb\u2066c\u2069\u200e\u061c"),
        ("\u200bzero\ufeff\u2060\U000e0041", r"\u200bzero\ufeff\u2060\U000e0041"),
        ("one\ntwo\tthree\r", r"one\ntwo\tthree\r"),
        ("half \ud83d, lines \u2028\u2029\x85", r"half \ud83d, lines \u2028\u2029\x85"),
        ("hard\xa0space\u2009thin", "hard space thin"),
    ):
        assert inert(text) == (text if shown is None else shown)
    assert inert("one\r\ntwo\tthree\rfour\x1b", lines=True) == "one\ntwo    three\\rfour\\x1b"
    controls = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    every = "".join(map(chr, [*range(0x10000), *range(0xE0000, 0xE0200)]))
    left = {letter for letter in inert(every) if unicodedata.category(letter) in controls}
    assert left == {"\u200c", "\u200d"}


def test_long_text_is_cut_with_a_note_and_in_no_time() -> None:
    assert inert("abcdef", 4) == "abcd… (2 more characters)"
    assert inert("abcd", 4) == "abcd"
    began = time.process_time()
    assert len(inert(10_000_000 * "\x1b", 2000)) < 8100
    assert time.process_time() - began < 1


def test_json_is_ascii_without_controls_and_the_same_value() -> None:
    value = {"\x7f": "\x1b\x9b\u202e\ud800中\n", "more": [1, None]}
    for text in (json_text(value), json_text(value, indent=2).replace("\n", "")):
        assert text.isascii()
        assert text.isprintable()
        assert json.loads(text) == value


def test_a_message_of_any_form_is_shown() -> None:
    for message, shown in (
        ({"role": "user", "content": "hi"}, "hi"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": 9 * "x"}]},
         "a\n[image_url of 47 characters]"),
        ({"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]},
         '→ f({"a": 1})'),
        ({"role": "assistant", "tool_calls": [7, {"function": {"arguments": None}}]}, "→ 7\n→ None(null)"),
        ({"role": "assistant", "content": "", "refusal": "no"}, "[refusal] no"),
        ({"content": 5, "tool_calls": "x", "role": ["\x1b"]}, "[int of 1 characters]"),
        ({"role": "assistant", "content": "", "tool_calls": []}, "nothing"),
        ("\x1b", '"\\u001b"'),
        (None, "null"),
    ):  # fmt: skip
        assert said(message, Cut()).plain == shown, message
