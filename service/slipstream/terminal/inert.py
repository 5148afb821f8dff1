"""Text of others made harmless for a terminal: it can neither give it commands, nor hide or reorder what it says."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

_KEPT = {
    "\u200c",  # joiners, which Persian, Hindi and emoji are written with
    "\u200d",
    "\u3000",  # the wide space of Chinese and Japanese
}
"""Characters that Python does not count as printable, and that neither move the cursor nor reorder text."""

_TAB = "    "


def inert(text: object, most: int | None = None, *, lines: bool = False) -> str:
    r"""Return text in which control characters, escape sequences, bidirectional overrides, invisible characters and
    halves of surrogate pairs stand as escapes such as `\x1b` and `\u202e`.

    Args:
        text: of anybody; what is no string is written as one.
        most: characters of it that are shown, or None for all; a note says how many more there are.
        lines: whether line ends and tabs stay.
    """
    whole = text if isinstance(text, str) else str(text)
    shown = whole if most is None else whole[:most]
    if lines:
        shown = shown.replace("\r\n", "\n").replace("\t", _TAB)
    if not shown.isprintable():
        shown = shown.translate(_IN_LINES if lines else _IN_A_LINE)
    left = 0 if most is None else len(whole) - most
    return f"{shown}… ({left:,} more characters)" if left > 0 else shown


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON that a terminal may be shown as it is: in ASCII, without control characters."""
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")  # the one that JSON leaves as it is


class _Escapes(dict[int, str]):
    """The text that each character is shown as, for `str.translate`, which asks for those that it has not met yet."""

    def __missing__(self, code: int) -> str:
        shown = self[code] = _shown(chr(code))
        return shown


def _shown(letter: str) -> str:
    if letter.isprintable() or letter in _KEPT:
        return letter
    if unicodedata.category(letter) == "Zs":  # a space that is not the usual one
        return " "
    return letter.encode("unicode_escape").decode("ascii")


_IN_A_LINE = _Escapes()
_IN_LINES = _Escapes({ord("\n"): "\n"})
