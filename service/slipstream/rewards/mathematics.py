"""Mathematical equality, decided by math-verify. Imported in a process of its own alone: SymPy takes a second to load.

An answer such as 9^(9^(9^9)) can keep SymPy busy for ever inside one C function that holds Python's lock.
"""

from __future__ import annotations

import logging
import re
from decimal import Decimal
from typing import Any

from math_verify import parse, verify  # type: ignore[import-untyped]

from slipstream.rewards.numerals import arithmetic

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off: ours is outside

_HAN = r"[\u3000-\u303f\u3400-\u9fff]"
_SEPARATORS = re.compile(rf"{_HAN}+:?|[：；！？。]")
_SCIENTIFIC = re.compile(r"(?<![\w.])[+-]?\d+(\.\d+)?[eE][+-]?\d{1,2}(?!\w|\.\d)")  # no more zeros than a hundred
_PERCENT = re.compile(r"(?<!\\)%")
_LATEX = re.compile(r"[$\\]")
_BOLD = re.compile(r"(?<![\w)])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w(])")


def readable(text: str) -> str:
    """The text as math-verify can read it: it finds no number between Chinese characters or in Markdown's bold."""
    text = _SEPARATORS.sub(" ", _numbers(_SEPARATORS.sub(" ", text), _LATEX.search(text) is not None))
    return _BOLD.sub(r"\1", text)


def _numbers(text: str, latex: bool) -> str:
    """The text with numbers as math-verify reads them: 1e3 would be 1 · e · 3 to it."""
    return _SCIENTIFIC.sub(lambda found: format(Decimal(found[0]), "f"), arithmetic(text, latex))


def reference_value(text: str) -> list[Any]:
    """A reference as math-verify sees it; a bare expression is read as LaTeX. Empty where it cannot be read."""
    text = _numbers(text, latex=True)
    bare = _PERCENT.sub(r"\\%", text)  # which begins a comment of LaTeX's
    marked = text if "$" in text or "\\boxed" in text else rf"\boxed{{{bare}}}"
    value: list[Any] = parse(marked, fallback_mode="no_fallback", parsing_timeout=None)
    return value


def check(references: list[str], answer: str) -> bool | None:
    """Return whether the answer equals one of the references; None when no reference can be read."""
    values = [value for text in references if (value := reference_value(text))]
    if not values:
        return None
    found = parse(readable(answer), parsing_timeout=None)
    return any(verify(value, found, timeout_seconds=None) for value in values)
