"""Pictures of a report as SVG: the means of each model, and the differences of two, each with its interval.

Colours are the page's variables, so that a picture follows its light and dark. Models differ in shape as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from slipstream.evaluation.reports import wording
from slipstream.evaluation.reports.document import PairPart, Report

COLOURS = 6
"""Colours and shapes of models; the seventh has those of the first again."""

_WIDTH, _LEFT, _RIGHT = 760, 180, 70
_ROW, _GAP, _TOP, _BOTTOM = 18, 12, 8, 30
_TICKS = 4


def means(report: Report, ranges: Mapping[str, tuple[float, float]]) -> str:
    """Draw the mean of each measure with a range, for each model; empty without any."""
    names = [name for name in report.measures if name in ranges]
    groups = []
    for name in names:
        found = [(place, model.measures.get(name)) for place, model in enumerate(report.models)]
        rows = [(place, mean) for place, mean in found if mean is not None and mean.mean is not None]
        if rows:
            groups.append((name, rows))
    if not groups:
        return ""
    low = min(ranges[name][0] for name, _ in groups)
    high = max(ranges[name][1] for name, _ in groups)
    axis = _Axis(low, high)
    parts, y = list[str](), _TOP
    for name, rows in groups:
        height = _ROW * len(rows)
        parts.append(_label(wording.measure_of(name).title, y + height / 2))
        for place, mean in rows:
            assert mean.mean is not None, "those without one are left out"
            middle = y + _ROW / 2
            if mean.interval is not None:
                parts.append(_whisker(axis, mean.interval, middle, f"m{place % COLOURS}"))
            told = f"{report.models[place].name}: {wording.mean_text(mean, wording.measure_of(name))}"
            parts.append(_mark(axis.at(mean.mean), middle, place, f"m{place % COLOURS}", told))
            parts.append(_value(wording.number(mean.mean, wording.measure_of(name)), middle))
            y += _ROW
        y += _GAP
    part = wording.part_held(report.settings.level)
    return _picture(axis, parts, y, f"Mean of each measure for each model, with its {part} interval")


def differences(pair: PairPart, ranges: Mapping[str, tuple[float, float]]) -> str:
    """Draw the difference of two models by each measure with a range; empty without any."""
    rows = [
        (name, found)
        for name, found in pair.measures.items()
        if name in ranges and found.difference is not None and found.interval is not None and found.sessions > 0
    ]
    if not rows:
        return ""
    reach = _round(max(abs(end) for _, found in rows for end in found.interval or ()))
    axis = _Axis(-reach, reach)
    parts, y = [""], float(_TOP)
    for name, found in rows:
        assert found.difference is not None, "those without are left out"
        assert found.interval is not None, "those without are left out"
        measure, middle = wording.measure_of(name), y + _ROW / 2
        colour = {True: "good", False: "bad", None: "even"}[wording.is_good(found, measure)]
        parts.append(_label(measure.title, middle))
        parts.append(_whisker(axis, found.interval, middle, colour))
        value = wording.number(found.difference, measure, sign=True)
        told = f"{measure.title}: {value}, {wording.interval_text(found, measure)}"
        parts.append(_mark(axis.at(found.difference), middle, 0, colour, told))
        parts.append(_value(value, middle))
        y += _ROW + _GAP / 2
    zero = axis.at(0)
    parts[0] = f'<line class="zero" x1="{zero:.1f}" x2="{zero:.1f}" y1="{_TOP}" y2="{y:.1f}"/>'
    return _picture(axis, parts, y, "Difference of two models by each measure, with its interval")


def _round(value: float) -> float:
    """Return a number from the value on whose half is short to write; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value * 0.999)


def mark(place: int) -> str:
    """Draw the mark of a model, for a legend."""
    shape = _mark(8, 8, place, f"m{place % COLOURS}", "")
    return f'<svg class="key" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">{shape}</svg>'


class _Axis:
    """The values from left to right."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        inside = min(self.high, max(self.low, value))
        return _LEFT + (inside - self.low) / (self.high - self.low) * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> Sequence[float]:
        return [self.low + (self.high - self.low) * step / _TICKS for step in range(_TICKS + 1)]


def _picture(axis: _Axis, parts: Sequence[str], bottom: float, told: str) -> str:
    height = bottom + _BOTTOM
    grid = []
    for tick in axis.ticks():
        x = axis.at(tick)
        grid.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom:.1f}"/>')
        grid.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18:.1f}">{tick:.3g}</text>')
    body = "".join((*grid, *parts))
    return (
        f'<svg class="picture" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(told)}">{body}</svg>'
    )


def _label(text: str, y: float) -> str:
    return f'<text class="label" x="{_LEFT - 14}" y="{y + 4:.1f}">{escape(wording.shown(text))}</text>'


def _value(text: str, y: float) -> str:
    return f'<text class="value" x="{_WIDTH - _RIGHT + 12}" y="{y + 4:.1f}">{escape(text)}</text>'


def _whisker(axis: _Axis, ends: tuple[float, float], y: float, colour: str) -> str:
    low, high = map(axis.at, ends)
    return f'<line class="whisker {colour}" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _mark(x: float, y: float, place: int, colour: str, told: str) -> str:
    title = f"<title>{escape(wording.shown(told))}</title>" if told else ""
    at = f'd="{_SHAPES[place % COLOURS]}" transform="translate({x:.1f} {y:.1f})"'
    return f'<path class="mark {colour}" {at}>{title}</path>'


_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",  # a circle
    "M-4.5 -4.5h9v9h-9z",  # a square
    "M0 -6L5.5 4.5h-11z",  # a triangle
    "M0 -6L6 0L0 6L-6 0z",  # a diamond
    "M0 6L5.5 -4.5h-11z",  # a triangle on its tip
    "M-5 -1.8h3.2v-3.2h3.6v3.2h3.2v3.6h-3.2v3.2h-3.6v-3.2h-3.2z",  # a cross
)
