"""Calculators that look for a reference answer, given in the task's metadata: `exact_match` and `contains`."""

from __future__ import annotations

import math
import re
import unicodedata
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slipstream.errors import ScoringError
from slipstream.rewards.calculator import UNIT, Bounds, NoBasis, PlainCalculator
from slipstream.rewards.numerals import normalised
from slipstream.rewards.registry import calculator
from slipstream.trajectory import Run


def reference_texts(run: Run, key: str) -> list[str]:
    """The reference answers under `metadata[key]`: a text or number, or a list of them that are all right.

    Raises:
        NoBasis: there is none, or the run repeats a call after which production's task went on: the reference
            describes the task's last answer, and a call in between is not meant to give it.
        ScoringError: it is something else.
    """
    found = run.metadata.get(key)
    if found is None or found == "" or found == []:
        raise NoBasis(f"the task has no metadata.{key}")
    if run.production and any(call.position > run.production.position for call in run.task.calls):
        raise NoBasis(f"metadata.{key} describes the task's last answer, and this call is not the last")
    texts = found if isinstance(found, list) else [found]
    if not all(isinstance(text, str | int | float) for text in texts):
        raise ScoringError(f"metadata.{key} is expected to be a text, a number, or a list of them")
    return [_written(text) for text in texts]


def _written(value: str | float) -> str:
    """The text of a reference; numbers as people write them: `str` makes 5e-05 of 0.00005."""
    if isinstance(value, float) and math.isfinite(value):
        text = format(Decimal(repr(value)), "f")
        return text.removesuffix(".0")
    return str(value)


class _AgainstReference(PlainCalculator):
    """Comparison after normalisation: Unicode NFKC (so that full-width forms, as in Chinese text, equal ASCII ones),
    with numbers as they are meant, runs of white space as one space, and what the options say."""

    bounds: ClassVar[Bounds | None] = UNIT

    key: Annotated[str, Field(min_length=1)] = "reference"
    ignore_case: bool = True
    ignore_space: bool = False
    ignore_punctuation: bool = False

    def normalised(self, text: str) -> str:
        text = normalised(text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            text = "".join(" " if unicodedata.category(char).startswith("P") else char for char in text)
        return ("" if self.ignore_space else " ").join(text.split())

    def references(self, run: Run) -> list[str]:
        """The normalised references, none of them empty: the empty text would be in every answer."""
        texts = [self.normalised(text) for text in reference_texts(run, self.key)]
        if not all(texts):
            raise ScoringError(f"a reference in metadata.{self.key} is empty after normalisation")
        return texts


@calculator("exact_match")
class ExactMatch(_AgainstReference):
    """1 where the answer is the reference, or one of the references; otherwise 0."""

    def calculate(self, run: Run) -> float:
        return float(self.normalised(run.text) in self.references(run))


@calculator("contains")
class Contains(_AgainstReference):
    """1 where the answer contains the reference; of several, `any` one or the share of `all` of them."""

    match: Literal["any", "all"] = "any"
    whole_words: bool = True

    def calculate(self, run: Run) -> float:
        answer = self.normalised(run.text)
        found = [self._within(answer, reference) for reference in self.references(run)]
        return float(any(found)) if self.match == "any" else sum(found) / len(found)

    def _within(self, answer: str, reference: str) -> bool:
        if self.ignore_space or not self.whole_words:  # without spaces no border of a word is left
            return reference in answer
        reference, answer = _without_groups(reference), _without_groups(answer)
        if _NUMBER.fullmatch(reference):
            answer = _PAIRS.sub("_", answer)
        return re.search(_whole(reference), answer) is not None


_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)")

_PAIRS = re.compile(r"(?<!\d)(?<!\d[/:])(?:\d+/\d+|\d?\d:\d\d)(?![/:]?\d)")
"""Fractions and times, of which no part is a number by itself: 3/4 and 4:30, and no date such as 2024/05/01."""

_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!,?\d)")


def _without_groups(text: str) -> str:
    """The text without the commas between thousands."""
    return _GROUPS.sub(lambda found: found[0].replace(",", ""), text)


def _whole(text: str) -> str:
    """A pattern for the text where it is not part of a longer word or number.

    Only ASCII letters and digits have such borders here: Chinese has no space between words. The 4 of "14", "4.5",
    ".4", "4^2" and "-4" is no 4, and the -4 of "10-4" no -4; the 4 of "3-4" is one, and that of "4^\\circ".
    """
    before = after = ""
    if text[:1].isascii() and text[:1].isalnum():
        before = r"(?<![A-Za-z0-9_])(?<!\d[.,])"
    if text[:1].isdigit():
        before += r"(?<!(?<![A-Za-z0-9_)])[-–])(?<!(?<![A-Za-z0-9_.])\.)(?<!\^)"
    if re.match(r"[-+]\.?\d", text):
        before = r"(?<![A-Za-z0-9_)^])"
    if text[-1:].isascii() and text[-1:].isalnum():
        after = r"(?![A-Za-z0-9_])(?![.,]\d)"
    if text[-1:].isdigit():
        after += r"(?!\^(?!\{?\\circ))"
    return before + re.escape(text) + after
