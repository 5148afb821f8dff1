"""Metric of the lines of the log that were dropped. Apart from `output.py`, which commands without metrics have too."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from slipstream.output import Output


class DroppedLines(Collector):
    """Prometheus collector for the lines that all processes dropped."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "slipstream_log_lines_dropped",
            "Lines of the log, of all processes, that were dropped because stderr was not read.",
            self._output.dropped,
        )
