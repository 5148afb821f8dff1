"""The report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from slipstream.evaluation.reports import wording
from slipstream.evaluation.reports.document import Report

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#!|~&:@])")


def markdown(report: Report) -> str:
    """Write a report as Markdown. Texts of others are plain text in it."""
    lines = ["# Report on models", "", f"{escaped(wording.asked_text(report))}. {plain(report.made_at)}.", ""]
    lines += [f"End to end is scored by {plain(report.settings.end_to_end)}.", ""]
    lines += _conditions(report)
    lines += ["## Means", "", *_means(report), ""]
    lines += _answers(report)
    lines += _pairs(report)
    lines += ["## How to read it", "", *(f"- {escaped(note)}" for note in wording.notes(report)), ""]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def plain(text: str) -> str:
    """Return a text of others that Markdown shows as it is, without what could break a line or a table."""
    return escaped(wording.shown(text))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in lines]


def _conditions(report: Report) -> list[str]:
    if not report.conditions:
        return []
    rows = [(plain(each.text), "holds" if each.holds else "**fails**", plain(each.found)) for each in report.conditions]
    return ["## Conditions", "", *_table(("condition", "", "found"), rows), ""]


def _means(report: Report) -> list[str]:
    rows = [tuple(map(escaped, row)) for row in wording.mean_rows(report)]
    return _table(("", *(plain(model.name) for model in report.models)), rows)


def _answers(report: Report) -> list[str]:
    lines = ["## Answers", ""]
    for model in report.models:
        counts = ", ".join(f"{count} {plain(name)}" for name, count in sorted(model.answers.items()))
        served = "" if model.version is None else f", version {model.version}"
        line = f"- {plain(model.name)}{served}: {counts}"
        if model.away is not None:
            line += f". **Away:** {plain(model.away)}"
        elif model.reason is not None:
            line += f". The first that is missing: {plain(model.reason)}"
        lines.append(line)
    return [*lines, ""]


def _pairs(report: Report) -> list[str]:
    lines: list[str] = []
    for pair in report.pairs:
        lines += [f"## {plain(pair.one)} less {plain(pair.other)}", ""]
        rows = [tuple(map(escaped, row)) for row in wording.pair_rows(pair)]
        lines += [*_table(wording.PAIR_HEAD, rows), ""]
        if (first := wording.first_measure(list(pair.measures))) is None:
            continue
        cases = wording.differing(report, pair, first)
        if cases:
            measure = wording.measure_of(first)
            lines += [f"The cases that differ most in {measure.title.lower()}:", ""]
            rows_of = [
                (plain(case.case), wording.number(one, measure), wording.number(other, measure))
                for case, one, other in cases
            ]
            lines += [*_table(("case", plain(pair.one), plain(pair.other)), rows_of), ""]
    return lines
