"""A report as it is asked for on the command line: checked, and made into a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.evaluation.reports import measures
from slipstream.evaluation.reports.benchmarks import cases_of_benchmark
from slipstream.evaluation.reports.cases import CaseSet, cases_of_file
from slipstream.evaluation.reports.conditions import Wanted, least_of
from slipstream.evaluation.reports.making import Plan
from slipstream.evaluation.reports.names import ReportError, model_named
from slipstream.evaluation.reports.stored import stored_cases
from slipstream.settings.sidecar import Settings

LIVE = "live"
"""The word for the held-out sessions of the store."""

_SESSIONS = 200
_MOST_MODELS = 8


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a report; without any, no report is asked for."""

    models: tuple[str, ...] = ()
    cases: Path | None = None
    held_out: str | None = None
    sessions: int | None = None
    benchmark: str | None = None
    report: Path | None = None
    metrics: tuple[str, ...] = ()
    against: str | None = None
    fail_under: tuple[str, ...] = ()
    fail_worse: bool = False
    fail_margin: float | None = None
    repeat: int = 1
    parameters: str | None = None
    limit: int | None = None
    concurrency: int | None = None
    max_requests: int = 1000
    model_key_from: str | None = None
    compare: tuple[Path, Path] | None = None

    def check(self, version: str | None, suite: str | None) -> None:
        """Make sure that the options go together.

        Args:
            version, suite: of an evaluation of a version on a suite, which is another thing.

        Raises:
            ReportError: they do not.
        """
        if version is not None or suite is not None:
            raise ReportError("expected either [VERSION] and --suite, or the options of a report; found both")
        if self.compare is not None:
            asking = self.models, self.cases, self.held_out, self.sessions, self.benchmark, self.parameters, self.limit
            if any(asking) or self.repeat != 1 or self.concurrency is not None or self.model_key_from is not None:
                raise ReportError("--compare: expected two reports and nothing to ask, found options of both")
            return
        if not self.models:
            raise ReportError("--model: needed, once for each model of the report")
        if sum(each is not None for each in (self.cases, self.held_out, self.benchmark)) != 1:
            raise ReportError("expected exactly one of --cases, --held-out and --benchmark")
        if self.sessions is not None and self.held_out != LIVE:
            raise ReportError("--sessions: expected --held-out live with it")
        if self.fail_margin is not None and not self.fail_worse:
            raise ReportError("--fail-margin: expected --fail-worse with it")

    @property
    def measures(self) -> tuple[str, ...]:
        """Return the measures that are shown. Raises ReportError."""
        return measures.chosen(self.metrics)

    @property
    def wanted(self) -> Wanted:
        """Return the conditions. Raises ReportError."""
        least = least_of(self.fail_under)
        for name in least:
            if name not in self.measures:
                raise ReportError(f"--fail-under: expected one of --metrics, found {name}")
        ranked = [name for name in self.measures if measures.MEASURES[name].bounded]
        if self.fail_worse and not ranked:
            raise ReportError("--fail-worse: expected a measure of which more is better in --metrics, found none")
        return Wanted(least, ranked[:1] if self.fail_worse else [], self.fail_margin or 0.0)

    def plan(self, settings: Settings, environ: Mapping[str, str]) -> Plan:
        """Return what is to be asked.

        Raises:
            ReportError: an option is wrong.
        """
        named = [model_named(text) for text in self.models]
        against = named[0] if self.against is None else model_named(self.against)
        if against not in named:
            named.insert(0, against)
        texts = [name.text for name in named]
        if len(set(texts)) < len(texts):
            raise ReportError(f"--model: expected different models, found {', '.join(texts)}")
        if len(named) > _MOST_MODELS:
            raise ReportError(f"--model: expected {_MOST_MODELS} models at most, found {len(named)}")
        if self.fail_worse and len(named) == 1:
            raise ReportError("--fail-worse: expected a model to compare with, found one model alone")
        return Plan(
            models=named,
            against=against.text if len(named) > 1 else None,
            measures=self.measures,
            repeat=self.repeat,
            parameters=_parameters(self.parameters),
            concurrency=self.concurrency or settings.evaluation.concurrency,
            most_requests=self.max_requests,
            secret=self._secret(environ),
            wanted=self.wanted,
        )

    async def cases_in(self, settings: Settings) -> CaseSet:
        """Read the cases, but for those of a data set's folder.

        Raises:
            SlipstreamError: they cannot be read.
        """
        if self.cases is not None:
            return cases_of_file(self.cases)
        if self.benchmark is not None:
            return cases_of_benchmark(self.benchmark)
        return await stored_cases(settings, self.sessions or _SESSIONS)

    def _secret(self, environ: Mapping[str, str]) -> str:
        if self.model_key_from is None:
            return ""
        if not environ.get(self.model_key_from):
            raise ReportError(f"--model-key-from: expected a variable with a key, found no {self.model_key_from[:100]}")
        return environ[self.model_key_from]


def _parameters(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        read = json.loads(text)
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()  # what it holds stands in the report
    except (ValueError, RecursionError) as error:
        raise ReportError(f"--parameters: expected a JSON object; {error}") from error
    if not isinstance(read, dict):
        raise ReportError(f"--parameters: expected a JSON object, found {type(read).__name__}")
    return read
