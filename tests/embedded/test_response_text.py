from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from slipstream.embedded.response_text import ResponseText


@pytest.fixture(scope="module")
def tokenizer(tokenizer_files: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(tokenizer_files)


def shown(tokenizer: PreTrainedTokenizerBase, text: str, response: ResponseText) -> list[str]:
    pieces = []
    for token_id in tokenizer.encode(text):
        pieces.append(response.add(token_id))
        if response.stopped:
            break
    return [*pieces, response.rest()]


@pytest.mark.parametrize("text", ["Hello, world!\n\n", "naïve 日本語 🙂🙃 ok", "  two  spaces\t", ""])
def test_the_pieces_make_the_text(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    response = ResponseText(tokenizer, stop=[], tools=False)

    pieces = shown(tokenizer, text, response)

    assert "".join(pieces) == response.text == text
    assert not any("�" in piece for piece in pieces)


def test_special_tokens_are_not_text(tokenizer: PreTrainedTokenizerBase) -> None:
    response = ResponseText(tokenizer, stop=[], tools=False)

    assert "".join(shown(tokenizer, "done<|im_end|>", response)) == "done"


@pytest.mark.parametrize("stop", [["three"], ["o three", "unused"], [" thr"], ["three four five"]])
def test_a_stop_string_ends_the_text_and_is_never_shown(tokenizer: PreTrainedTokenizerBase, stop: list[str]) -> None:
    text = "one two three four five six"
    response = ResponseText(tokenizer, stop, tools=False)

    pieces = shown(tokenizer, text, response)

    assert response.stopped
    assert "".join(pieces) == response.text == text.partition(stop[0])[0]


def test_the_first_of_two_stop_strings_in_one_token_wins(tokenizer: PreTrainedTokenizerBase) -> None:
    [token] = tokenizer.encode(" world")
    response = ResponseText(tokenizer, ["ld", "wo"], tools=False)

    assert response.add(token) + response.rest() == " "


def test_the_beginning_of_a_stop_string_that_comes_to_nothing_is_shown(tokenizer: PreTrainedTokenizerBase) -> None:
    response = ResponseText(tokenizer, ["two four"], tools=False)

    assert "".join(shown(tokenizer, "one two three", response)) == "one two three"
    assert not response.stopped


def test_tool_calls_are_held_back(tokenizer: PreTrainedTokenizerBase) -> None:
    response = ResponseText(tokenizer, stop=[], tools=True)

    *pieces, rest = shown(tokenizer, 'Let me look.<tool_call>\n{"name": "f"}</tool_call>', response)

    assert "".join(pieces) == "Let me look."
    assert rest == '<tool_call>\n{"name": "f"}</tool_call>'
