"""Precision and recall of the detector of corrections: writes a part of docs/corrections.md.

    PYTHONPATH=benchmarks python -m corrections.detector [--min-score 0.5] [--write docs/corrections.md]

`tuned.tsv` has the messages that the signs were chosen on, `unseen.tsv` those that were written before there was a
detector, and that nothing was changed for. Each line is + (a correction) or -, the language, the answer, and the user's
next message.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.region import unwritable, write

from slipstream.datasets.corrections import detect

HERE = Path(__file__).parent
LANGUAGES = {"en": "English", "de": "German", "zh": "Chinese"}


@dataclass(frozen=True)
class Labelled:
    """A message with the answer before it, and the judgement of a person."""

    correction: bool
    language: str
    answer: str
    message: str


@dataclass(frozen=True)
class Counts:
    """Messages by what they are and what they were taken for."""

    hits: int = 0
    misses: int = 0
    false_alarms: int = 0
    passed: int = 0

    @property
    def precision(self) -> str:
        """Return the share of the messages taken for corrections that are corrections."""
        return share(self.hits, self.hits + self.false_alarms)

    @property
    def recall(self) -> str:
        """Return the share of the corrections that was found."""
        return share(self.hits, self.hits + self.misses)

    @property
    def alarms(self) -> str:
        """Return the share of the other messages that was taken for corrections."""
        return share(self.false_alarms, self.false_alarms + self.passed)


def read(name: str) -> list[Labelled]:
    """The messages of a file."""
    with (HERE / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Labelled(sign == "+", language, answer, message) for sign, language, answer, message in lines]


def count(messages: Iterable[Labelled], min_score: float) -> Counts:
    """Have the detector judge messages."""
    taken = [(each.correction, detect(each.message, each.answer).score >= min_score) for each in messages]
    return Counts(
        hits=taken.count((True, True)),
        misses=taken.count((True, False)),
        false_alarms=taken.count((False, True)),
        passed=taken.count((False, False)),
    )


def share(part: int, whole: int) -> str:
    """A share with its 95% interval (Wilson, 1927)."""
    if not whole:
        return "none"
    z, found = 1.96, part / whole
    middle = (found + z * z / (2 * whole)) / (1 + z * z / whole)
    half = z * math.sqrt(found * (1 - found) / whole + z * z / (4 * whole * whole)) / (1 + z * z / whole)
    return f"{found:.2f} ({max(0.0, middle - half):.2f} to {min(1.0, middle + half):.2f})"


def part(min_score: float) -> str:
    """The part of the page."""
    lines = [
        "| messages | corrections | others | precision | recall | others taken for corrections |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in (("unseen", "not tuned on"), ("tuned", "tuned on")):
        messages = read(name)
        for language, spoken in [(None, "all"), *LANGUAGES.items()]:
            chosen = [each for each in messages if language in (None, each.language)]
            found = count(chosen, min_score)
            corrections = found.hits + found.misses
            lines.append(
                f"| {title}, {spoken} | {corrections} | {len(chosen) - corrections} | {found.precision} "
                f"| {found.recall} | {found.alarms} |"
            )
    lines += [
        "",
        f"`min_score` {min_score:g}; in brackets are 95% intervals. "
        "`PYTHONPATH=benchmarks python -m corrections.detector`.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--min-score", type=float, default=0.5)
    parser.add_argument("--write", type=Path, help="the page whose part is replaced")
    arguments = parser.parse_args()
    if arguments.write is not None and (why := unwritable(arguments.write, "detector")):
        parser.error(f"--write: {why}")
    text = part(arguments.min_score)
    print(text)
    if arguments.write is not None:
        write(arguments.write, "detector", text)


if __name__ == "__main__":
    main()
