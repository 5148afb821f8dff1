"""The measures of a report: what each of them means, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from slipstream.evaluation.metrics import ALIASES, Metric
from slipstream.evaluation.reports.names import ReportError


class Measure(NamedTuple):
    """A value of an answer that is compared.

    Attributes:
        title: for people.
        better: which values are better.
        unit: of the values; empty for parts of one.
    """

    title: str
    better: Literal["higher", "lower"] = "higher"
    unit: str = ""

    @property
    def bounded(self) -> bool:
        """Return whether its values have a range, so that a claim about their mean can be proven."""
        return not self.unit


MEASURES: Mapping[str, Measure] = {
    Metric.END_TO_END.value: Measure("End to end"),
    Metric.TOOL_ACCURACY.value: Measure("Tool accuracy"),
    Metric.ARGUMENT_ACCURACY.value: Measure("Argument accuracy"),
    Metric.RECALL.value: Measure("Recall"),
    Metric.PLAN_SUCCESS.value: Measure("Plan success"),
    Metric.STEP_EFFICIENCY.value: Measure("Step efficiency"),
    Metric.TIMING_PRECISION.value: Measure("Timing precision"),
    "format": Measure("Format"),
    "latency": Measure("Latency", "lower", "s"),
    "tokens": Measure("Answer", "lower", "tokens"),
    "prompt_tokens": Measure("Prompt", "lower", "tokens"),
}
"""All of them, in the order in which they are shown."""


def chosen(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the measures of these names, each of which may be several with commas; all of them for none.

    Raises:
        ReportError: there is no measure of a name.
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    if not names:
        return tuple(MEASURES)
    wanted = {named(name, "--metrics") for name in names}
    return tuple(name for name in MEASURES if name in wanted)


def named(name: str, option: str) -> str:
    """Return the measure of a name or an alias.

    Raises:
        ReportError: there is none.
    """
    found = ALIASES[name].value if name in ALIASES else name
    if found not in MEASURES:
        raise ReportError(f"{option}: expected one of {', '.join([*MEASURES, *ALIASES])}; found {name[:100]!r}")
    return found
