"""Mathematical equality, decided by math-verify. Imported in a process of its own alone: SymPy takes a second to load.

An answer such as 9^(9^(9^9)) can keep SymPy busy for ever inside one C function that holds Python's lock.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from decimal import Decimal
from typing import Any

from math_verify import parse, verify  # type: ignore[import-untyped]

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its timeouts are off: ours is outside

_HAN = r"[\u3000-\u303f\u3400-\u9fff]"
_SEPARATORS = re.compile(rf"{_HAN}+:?|[：；！？。]")
_SCIENTIFIC = re.compile(r"[+-]?\d+(\.\d+)?[eE][+-]?\d{1,2}")
_PERCENT = re.compile(r"(?<!\\)%")
_BOLD = re.compile(r"(?<![\w)])\*\*(?=\S)(.+?)(?<=\S)\*\*(?![\w(])")


def readable(text: str) -> str:
    """The text as math-verify can read it: it finds no number between Chinese characters or in Markdown's bold."""
    text = _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", _SEPARATORS.sub(" ", text)))
    return _BOLD.sub(r"\1", text)


def reference_value(text: str) -> list[Any]:
    """A reference as math-verify sees it; a bare expression is read as LaTeX. Empty where it cannot be read."""
    if _SCIENTIFIC.fullmatch(text.strip()):  # it would read 1e3 as 1 · e · 3
        text = format(Decimal(text.strip()), "f")
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
