"""Numbers and words of a report, the same in each of its forms."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.evaluation.reports.document import CasePart, Difference, Mean, PairPart, Report
from slipstream.evaluation.reports.measures import MEASURES, Measure
from slipstream.evaluation.statistics import Judgement
from slipstream.terminal.inert import inert

DIFFERING = 20
"""Cases that are named: those in which two models differ most."""

_LONGEST = 200
"""Characters of a text of others that are shown."""

NONE = "–"


def measure_of(name: str) -> Measure:
    """Return what a measure is; one of another release has its name for a title, and no range."""
    return MEASURES.get(name, Measure(name, unit="?"))


def number(value: float | None, measure: Measure, *, sign: bool = False) -> str:
    """Write a value of a measure, with as many digits as it is worth."""
    if value is None:
        return NONE
    digits = 3 if not measure.unit else 2 if measure.unit == "s" else 1
    return format(value, f"{'+' if sign else ''},.{digits}f")


def mean_text(mean: Mean, measure: Measure) -> str:
    """Write a mean with its standard error."""
    if mean.mean is None or mean.standard_error is None:
        return number(mean.mean, measure)
    return f"{number(mean.mean, measure)} ± {number(mean.standard_error, measure)}"


def interval_text(found: Difference, measure: Measure) -> str:
    """Write the ends of an interval."""
    if found.interval is None:
        return NONE
    low, high = (number(end, measure, sign=True) for end in found.interval)
    return f"{low} to {high}"


def verdict_text(found: Difference, measure: Measure) -> str:
    """Write which of two models is better, and whether that is proven."""
    if found.verdict is Judgement.EQUAL:
        return "equal, proven"
    good = is_good(found, measure)
    if good is None:
        return "no difference shown"
    proven = found.verdict is (Judgement.BETTER if good else Judgement.WORSE)
    return ("better" if good else "worse") + (", proven" if proven else "")


def is_good(found: Difference, measure: Measure) -> bool | None:
    """Return whether the interval of a difference is on the better side of zero, or on the worse; None for neither."""
    if found.interval is None or found.interval[0] <= 0 <= found.interval[1]:
        return None
    return (found.interval[0] > 0) is (measure.better == "higher")


def titled(measure: Measure) -> str:
    """Write the title of a measure with its unit."""
    return shown(measure.title) + (f" ({shown(measure.unit)})" if measure.unit else "")


def mean_rows(report: Report) -> list[tuple[str, ...]]:
    """Write a row for each measure: its title, and the mean of each model."""
    rows = []
    for name in report.measures:
        measure = measure_of(name)
        means = [model.measures.get(name) for model in report.models]
        rows.append((titled(measure), *(NONE if mean is None else mean_text(mean, measure) for mean in means)))
    return rows


PAIR_HEAD = ("measure", "difference", "standard error", "interval", "verdict", "cases of sessions")


def pair_rows(pair: PairPart) -> list[tuple[str, ...]]:
    """Write a row for each measure of two models, under `PAIR_HEAD`."""
    return [
        (
            titled(measure := measure_of(name)),
            number(found.difference, measure, sign=True),
            number(found.standard_error, measure),
            interval_text(found, measure),
            verdict_text(found, measure),
            f"{found.cases:,} of {found.sessions:,}",
        )
        for name, found in pair.measures.items()
    ]


def shown(text: str) -> str:
    """Return a text of others that can neither break a line nor hide or reorder what stands beside it."""
    return inert(text, _LONGEST)


def differing(report: Report, pair: PairPart, measure: str) -> list[tuple[CasePart, float, float]]:
    """Return the cases in which two models differ most, with the values of `one` and `other`."""
    found = []
    for case in report.cases:
        one, other = (case.values.get(name, {}).get(measure) for name in (pair.one, pair.other))
        if one is not None and other is not None and one != other:
            found.append((case, one, other))
    found.sort(key=lambda each: (-abs(each[1] - each[2]), each[0].case))
    return found[:DIFFERING]


def first_measure(names: Sequence[str]) -> str | None:
    """Return the measure whose cases are shown: the first one that has a range."""
    return next((name for name in names if measure_of(name).bounded), None)


def asked_text(report: Report) -> str:
    """Say in one sentence what was asked."""
    settings = report.settings
    sessions = len({case.session for case in report.cases})
    times = "" if settings.repeat == 1 else f", each asked {settings.repeat} times"
    if settings.asked:
        times = f", each asked: {inert(settings.asked)}"
    return f"{len(report.cases):,} cases of {sessions:,} sessions from {shown(settings.source)}{times}"


def part_held(level: float) -> str:
    """Write how many of a hundred intervals at a level hold the true value."""
    return f"{100 - 100 * level:.6g}%"


def notes(report: Report) -> tuple[str, ...]:
    """Write notes on the numbers for their reader."""
    part = part_held(report.settings.level)
    return (
        "± is the standard error of the mean. It counts sessions, whose cases resemble each other (arXiv:2411.00640). "
        "A case that was asked several times counts once, with its mean.",
        "Two models are compared by the differences of the same cases, one for each session. The interval "
        f"({part}) is that of the normal distribution, which is too narrow for few sessions, and holds for one look.",
        "Proven is what the evidence of the sessions proves at the same level, for few sessions too, and however often "
        "one looks: better, worse, or equal within the margin. Without that word it is not proven.",
        "A case that gives no basis for a measure is left out of it, for all models. A model that was away has no "
        "value. An answer that a model refused to give has the lowest one.",
    )
