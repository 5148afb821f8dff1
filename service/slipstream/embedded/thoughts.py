"""Thoughts of a model told apart from its answer, while the text grows: `<think>`, thoughts, `</think>`, answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

_OPEN, _CLOSE = "<think>", "</think>"
_LAST_TOKENS = 16
"""Tokens at the end of a prompt that are read: more than `<think>` and the space after it take."""


class Piece(NamedTuple):
    """Text that was added to the thoughts, and to the answer."""

    thought: str
    said: str


class Thoughts:
    """Takes a text in pieces. Thoughts that nothing ends are thoughts: the answer was cut off before it began.

    Args:
        begun: the prompt ends with the opening tag, as some chat templates write it.
    """

    def __init__(self, begun: bool) -> None:
        self._begun = begun
        self._ended = False
        self._bare = True  # there is nothing but space so far
        self._held = ""

    def add(self, text: str, last: bool = False) -> Piece:
        """Take the next piece; returns what is now sure to be thoughts, and to be answer.

        Args:
            last: the text ends here, and nothing is held back.
        """
        self._held += text
        thought = ""
        if not self._begun:
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._begun, self._held = True, start.removeprefix(_OPEN)
            elif _OPEN.startswith(start) and not last:
                return Piece("", "")
            else:
                self._begun = self._ended = True
                self._bare = False  # the space at the beginning of an answer without thoughts is its own
        if not self._ended:
            found, closing, rest = self._held.partition(_CLOSE)
            if closing:
                thought, self._held, self._ended = self._shown(found.rstrip()), rest, True
                self._bare = True
            else:
                keep = len((found if last else _without_beginning(found)).rstrip())
                thought, self._held = self._shown(found[:keep]), "" if last else found[keep:]
                return Piece(thought, "")
        said, self._held = self._shown(self._held), ""
        return Piece(thought, said)

    def _shown(self, text: str) -> str:
        """The text without the space at the beginning of its part."""
        if self._bare:
            text = text.lstrip()
            self._bare = not text
        return text


def _without_beginning(text: str) -> str:
    """The text without what the closing tag could begin with."""
    sizes = (size for size in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:size]))
    return text[: len(text) - next(sizes, 0)]


def parted(text: str, begun: bool) -> Piece:
    """The thoughts and the answer of a whole text."""
    return Thoughts(begun).add(text, last=True)


def begun_by(prompt: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a prompt's tokens end with the opening tag."""
    return str(tokenizer.decode(list(prompt[-_LAST_TOKENS:]))).rstrip().endswith(_OPEN)
