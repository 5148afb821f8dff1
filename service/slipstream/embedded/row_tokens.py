"""Rows of a data set as token ids: the prompt as it is served, the answer as the Explorer records one.

A trainer's own rendering would teach other tokens than those that are served: a chat template may drop tools and calls
without a word, end a turn with one token too many, or tokenise an answer together with what stands before it. So a
prompt is made by the code that the Explorer makes it with, and an answer is its text, its calls in Hermes form and the
token that ends the turn: what the engine would have sampled to give this answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import jinja2
from pydantic import TypeAdapter
from transformers import PreTrainedTokenizerBase

from slipstream.datasets.corrections import corrected_prompt
from slipstream.datasets.row import Row
from slipstream.datasets.special_tokens import special_texts
from slipstream.dialects.hermes import TOOL_CALL
from slipstream.embedded.chat import Message, Tool, answer_text, prompt_ids
from slipstream.embedded.thoughts import begun_by

_MESSAGES, _TOOLS = TypeAdapter(list[Message]), TypeAdapter(list[Tool])


class LeftOut(StrEnum):
    """Reason why a row is not trained on."""

    TOO_LONG = "longer than model.max_model_len"
    NO_ANSWER = "an answer without text and without calls"
    SAME_ANSWERS = "chosen and rejected answer are the same tokens"
    SPECIAL = "a correction with a special token of the model"
    NOT_RENDERED = "refused by the chat template or the tokenizer, or not of text alone"


@dataclass(frozen=True, slots=True)
class RowTokens:
    """Token ids of a row; `rejected` is of a preference, `good` of KTO.

    Attributes:
        hinted: of a correction: the prompt with the correction in it.
        correction: its text alone.
    """

    prompt: list[int]
    answer: list[int]
    rejected: list[int] | None = None
    good: bool | None = None
    hinted: list[int] | None = None
    correction: list[int] | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longer prompt and the longer answer."""
        prompt = max(len(self.prompt), len(self.hinted or ()))
        return prompt + max(len(self.answer), len(self.rejected or ()))


class RowTokenizer:
    """Tokenises rows for one model.

    Args:
        tokenizer: with a chat template.
        ending_ids: tokens that end a response, as the engine has them.
        longest: tokens that prompt and answer may have together (`model.max_model_len`).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, ending_ids: Sequence[int], longest: int) -> None:
        self._tokenizer = tokenizer
        self._end = end_of_turn(tokenizer, ending_ids)
        self._thinks = "</think>" in tokenizer.get_chat_template()
        self._longest = longest
        self._special = special_texts(tokenizer)

    def tokens(self, row: Row) -> RowTokens | LeftOut:
        """Return the row's token ids, or why it is left out. Nothing is ever cut off a row."""
        try:
            prompt = self._prompt_ids(row, row.prompt)
            begun = self._thinks and begun_by(prompt, self._tokenizer)
            answer = self.answer_ids(row.answer, begun)
            rejected = None if row.rejected is None else self.answer_ids(row.rejected, begun)
            hinted = None if row.correction is None else self._hinted_ids(row, row.correction)
        except (jinja2.TemplateError, TypeError, ValueError):  # half of a surrogate pair is a TypeError
            return LeftOut.NOT_RENDERED
        if answer is None or (row.rejected is not None and rejected is None):
            return LeftOut.NO_ANSWER
        if answer == rejected:
            return LeftOut.SAME_ANSWERS
        found = RowTokens(prompt, answer, rejected, row.good)
        if row.correction is not None:
            if any(special in row.correction for special in self._special):
                return LeftOut.SPECIAL
            found = replace(found, hinted=hinted, correction=self._text_ids(row.correction))
        return found if found.longest <= self._longest else LeftOut.TOO_LONG

    def answer_ids(self, message: Mapping[str, Any], begun: bool = False) -> list[int] | None:
        """Return an answer's token ids with the one that ends the turn; None for an answer that says nothing.

        Args:
            begun: the prompt ends with the tag that opens thoughts, as some chat templates write it.

        Raises:
            ValidationError: it is no assistant message of text and calls.
            TypeError: it has half of a surrogate pair.
        """
        text = answer_text(Message.model_validate(message))
        if not text.strip():
            return None
        if self._thinks:
            text = _with_thoughts(text, message.get("reasoning_content"), begun)
        return [*self._text_ids(text), self._end]

    def _prompt_ids(self, row: Row, messages: Sequence[Any]) -> list[int]:
        return prompt_ids(self._tokenizer, _MESSAGES.validate_python(messages), _TOOLS.validate_python(row.tools))

    def _hinted_ids(self, row: Row, correction: str) -> list[int]:
        return self._prompt_ids(row, corrected_prompt(row.prompt, correction))

    def _text_ids(self, text: str) -> list[int]:
        # what looks like a special token is text: no engine would have gone on after sampling it
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def _with_thoughts(text: str, thoughts: str | None, begun: bool) -> str:
    """Return an answer as a model writes it that thinks first, as Qwen3: an empty line is between the two."""
    if thoughts:
        opening = "" if begun else "<think>\n"
        return f"{opening}{thoughts}\n</think>\n\n{text}"
    return text.replace(f"</think>\n{TOOL_CALL}", f"</think>\n\n{TOOL_CALL}", 1)  # read from a call, it was stripped


def end_of_turn(tokenizer: PreTrainedTokenizerBase, ending_ids: Sequence[int]) -> int:
    """Return the token that ends an answer: of those that end a response, the one that the chat template writes.

    A tokenizer's `eos_token` is not it for every model: Gemma's ends a text, and `<end_of_turn>` ends an answer. Phi's
    template writes both. So it is the first one behind where two conversations with different answers differ.
    """
    one, other = (_exchange(tokenizer, answer) for answer in ("Yes", "No"))
    differs = next(place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    written = (token_id for token_id in one[differs:] if token_id in ending_ids)
    return next(written, tokenizer.eos_token_id if tokenizer.eos_token_id is not None else ending_ids[0])


def _exchange(tokenizer: PreTrainedTokenizerBase, answer: str) -> list[int]:
    messages = [{"role": "user", "content": "Is it?"}, {"role": "assistant", "content": answer}]
    ids: Any = tokenizer.apply_chat_template(messages, return_dict=False)
    return list(ids)


def tokenised(
    rows: Iterable[Row], tokenizer: RowTokenizer, left_out: dict[LeftOut, int]
) -> Iterator[tuple[Row, RowTokens]]:
    """Yield each row that can be trained on with its tokens, and count the others in `left_out`."""
    for row in rows:
        found = tokenizer.tokens(row)
        if isinstance(found, LeftOut):
            left_out[found] = left_out.get(found, 0) + 1
        else:
            yield row, found
