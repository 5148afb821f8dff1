"""The report as one HTML file: no script, nothing fetched, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from slipstream.evaluation.reports import pictures, wording
from slipstream.evaluation.reports.document import PairPart, Report
from slipstream.evaluation.reports.measures import MEASURES
from slipstream.evaluation.reports.summary import ranges_of

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser loads and runs nothing, whatever a text of the report is."""

_LONG = 80
"""Characters of a cell's HTML from which on its lines may be broken."""

_STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1d2129;--soft:#5c6470;--line:#dfe3e8;--panel:#f6f7f9;--good:#1a7f4b;
--bad:#c0362c;--even:#5c6470;--m0:#2a6fdb;--m1:#c2570c;--m2:#1a7f4b;--m3:#8a3ffc;--m4:#b0156a;--m5:#0f7a8a}
@media (prefers-color-scheme:dark){:root{--back:#15181d;--text:#e6e9ee;--soft:#9aa4b2;--line:#323841;--panel:#1d2128;
--good:#4cc38a;--bad:#ff7b6e;--even:#9aa4b2;--m0:#6ea8ff;--m1:#ff9f5a;--m2:#4cc38a;--m3:#b994ff;--m4:#ff7ac0;
--m5:#4fd0e0}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:1000px;margin:0 auto;padding:28px 20px 60px}h1{font-size:26px;margin:0 0 4px}
h2{font-size:19px;margin:36px 0 10px}h1,h2,li,p{overflow-wrap:anywhere}p{margin:6px 0}.soft{color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere;min-width:150px}
td:not(:first-child){white-space:nowrap}th{font-weight:600;color:var(--soft)}
td.long{white-space:normal;overflow-wrap:anywhere;min-width:180px}
summary{cursor:pointer;color:var(--soft);margin:8px 0}
.good{color:var(--good)}.bad{color:var(--bad)}.card{background:var(--panel);border:1px solid var(--line);
border-radius:8px;padding:12px 16px;margin:12px 0}.picture{width:100%;height:auto;display:block}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 6px;padding:0;list-style:none}
.legend li{display:flex;align-items:center;gap:6px}.key{flex:none}
text{font:12px system-ui,sans-serif;fill:var(--text)}.label{text-anchor:end}.tick{text-anchor:middle;fill:var(--soft)}
.value{font-variant-numeric:tabular-nums}.grid{stroke:var(--line)}.zero{stroke:var(--text);stroke-width:1.2}
.whisker{stroke-width:2.5;stroke-linecap:round;opacity:.6}.even{color:var(--even)}
""" + "".join(f".m{place}{{color:var(--m{place})}}" for place in range(pictures.COLOURS))
_STYLE += ".mark{fill:currentColor}.whisker{stroke:currentColor}"


def html(report: Report) -> str:
    """Write a report as HTML. Texts of others are plain text in it."""
    ranges = ranges_of([name for name in report.measures if name in MEASURES], report.settings.range)
    body = "".join(
        (
            f"<h1>Report on models</h1><p>{escape(wording.asked_text(report))}.</p>",
            f'<p class="soft">End to end is scored by {_text(report.settings.end_to_end)}. {_text(report.made_at)}, '
            f"slipstream {_text(report.slipstream)}.</p>",
            _conditions(report),
            _means(report, ranges),
            _answers(report),
            *(_pair(report, pair, ranges) for pair in report.pairs),
            "<h2>How to read it</h2><ul>",
            *(f"<li>{escape(note)}</li>" for note in wording.notes(report)),
            "</ul>",
        )
    )
    names = ", ".join(wording.shown(model.name) for model in report.models)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Report on models: {escape(names)}</title><style>{_STYLE}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _text(text: str) -> str:
    return escape(wording.shown(text))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


def _cell(cell: str) -> str:
    return f"<td{' class=long' if len(cell) > _LONG else ''}>{cell}</td>"


def _conditions(report: Report) -> str:
    if not report.conditions:
        return ""
    rows = [
        (_text(each.text), _judged("holds" if each.holds else "fails", each.holds), _text(each.found))
        for each in report.conditions
    ]
    return f"<h2>Conditions</h2>{_table(('condition', '', 'found'), rows)}"


def _judged(words: str, good: bool | None) -> str:
    if good is None:
        return escape(words)
    return f'<span class="{"good" if good else "bad"}">{"✓" if good else "✗"} {escape(words)}</span>'


def _means(report: Report, ranges: Mapping[str, tuple[float, float]]) -> str:
    rows = [tuple(map(escape, row)) for row in wording.mean_rows(report)]
    heads = [
        f'<span class="m{place % pictures.COLOURS}">{_text(model.name)}</span>'
        for place, model in enumerate(report.models)
    ]
    picture = pictures.means(report, ranges)
    if picture:
        keys = "".join(f"<li>{pictures.mark(i)}{_text(model.name)}</li>" for i, model in enumerate(report.models))
        picture = f'<div class="card"><ul class="legend">{keys}</ul>{picture}</div>'
    return f"<h2>Means</h2>{picture}{_table(('', *heads), rows)}"


def _answers(report: Report) -> str:
    rows = []
    for model in report.models:
        counts = ", ".join(f"{count:,} {_text(name)}" for name, count in sorted(model.answers.items()))
        told = _text(model.reason or "")
        if model.away is not None:
            told = f'<span class="bad">away: {_text(model.away)}</span>'
        served = f"version {model.version}" if model.version is not None else _text(model.model or "")
        rows.append((_text(model.name), served, counts, told))
    return f"<h2>Answers</h2>{_table(('model', 'served as', 'answers', 'the first that is missing'), rows)}"


def _pair(report: Report, pair: PairPart, ranges: Mapping[str, tuple[float, float]]) -> str:
    rows = []
    for (name, found), row in zip(pair.measures.items(), wording.pair_rows(pair), strict=True):
        *first, verdict, cases = row
        good = wording.is_good(found, wording.measure_of(name))
        rows.append((*map(escape, first), _judged(verdict, good), escape(cases)))
    picture = pictures.differences(pair, ranges)
    card = f'<div class="card">{picture}</div>' if picture else ""
    title = f"<h2>{_text(pair.one)} less {_text(pair.other)}</h2>"
    return f"{title}{card}{_table(wording.PAIR_HEAD, rows)}{_differing(report, pair)}"


def _differing(report: Report, pair: PairPart) -> str:
    first = wording.first_measure(list(pair.measures))
    cases = [] if first is None else wording.differing(report, pair, first)
    if first is None or not cases:
        return ""
    measure = wording.measure_of(first)
    rows = [
        (_text(case.case), escape(wording.number(one, measure)), escape(wording.number(other, measure)))
        for case, one, other in cases
    ]
    told = f"The cases that differ most in {escape(measure.title.lower())}"
    table = _table(("case", _text(pair.one), _text(pair.other)), rows)
    return f"<details><summary>{told}</summary>{table}</details>"
