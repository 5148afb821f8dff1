"""Cases of a report: those of a file, of the held-out split of a data set, or of the store's held-out sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from slipstream.evaluation.cases import AskedCase, CasesError, read_cases
from slipstream.evaluation.metrics import ExpectedCall, exactly, expected_call
from slipstream.jsontext import to_json
from slipstream.rewards.tool_use import parsed
from slipstream.trajectory import PolicyCall, Task, message_text, message_tool_calls

TOOL_CALLS = "tool_calls"
"""Key of the expected calls in a case's metadata, as of the calculators."""

_MOST_ROWS = 10_000
"""Rows of a data set, as of a file of cases: they are in memory while they are asked."""


@dataclass(frozen=True, slots=True)
class ReportCase:
    """A case with what is known of the right answer.

    Attributes:
        case: what is asked, with its session.
        expected: the tool calls that are right; None if nothing is known of them.
        due: a tool is to be called; None if that is not known either.
        task: of a held-out call, from that call on.
        stored: production's answer to it, as its user got it.
    """

    case: AskedCase
    expected: Sequence[ExpectedCall] | None = None
    due: bool | None = None
    task: Task | None = None
    stored: PolicyCall | None = None


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases of a report.

    Attributes:
        source: where they come from, for people.
        cases: at least one.
    """

    source: str
    cases: Sequence[ReportCase]

    @property
    def digest(self) -> str:
        """Name the cases: equal for two sets of the same ones."""
        keys = sorted(each.case.key for each in self.cases)
        return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]

    def limited(self, count: int | None) -> CaseSet:
        """Return so many of the cases: the same ones whatever their order in the source is."""
        if count is None or count >= len(self.cases):
            return self
        kept = {each.case.key for each in sorted(self.cases, key=lambda each: each.case.key)[:count]}
        return replace(self, cases=[each for each in self.cases if each.case.key in kept])


class HeldOutRow(Protocol):
    """A row of a data set, as `slipstream.datasets.row.Row` is."""

    @property
    def prompt(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def answer(self) -> Mapping[str, Any]: ...
    @property
    def good(self) -> bool | None: ...
    @property
    def correction(self) -> str | None: ...
    @property
    def digest(self) -> str: ...


def cases_of_file(path: Path) -> CaseSet:
    """Read the cases of a JSONL file.

    Raises:
        CasesError: a line is no case, or expects no tool calls that can be read.
    """
    found, problems = [], []
    for case in read_cases(path):
        try:
            found.append(_with_calls(case))
        except CasesError as error:
            problems.append(f"{path}: case {case.name!r}: metadata.{error}")
    if problems:
        raise CasesError("\n".join(problems[:10]))
    return CaseSet(path.name, found)


def _with_calls(case: AskedCase) -> ReportCase:
    """
    Raises:
        CasesError: its expected calls cannot be read; names the field below `metadata`.
    """
    raw = case.metadata.get(TOOL_CALLS)
    if raw is None:
        return ReportCase(case)
    if not isinstance(raw, list):
        raise CasesError(f"{TOOL_CALLS}: expected a list of tool calls, found {type(raw).__name__}")
    calls = []
    for place, each in enumerate(raw):
        if not isinstance(each, Mapping):
            raise CasesError(f"{TOOL_CALLS}.{place}: expected a tool call, found {type(each).__name__}")
        try:
            calls.append(expected_call(each))
        except ValueError as error:
            raise CasesError(f"{TOOL_CALLS}.{place}: {error}") from error
    return ReportCase(case, calls, due=bool(calls))


def cases_of_rows(source: str, rows: Iterable[tuple[HeldOutRow, str]]) -> CaseSet:
    """Make a case of each row of a data set that teaches a right answer.

    Args:
        rows: each with the name of its session.

    Raises:
        CasesError: there is none.
    """
    found: dict[str, ReportCase] = {}
    for row, session in rows:
        if row.good is not False and row.correction is None:  # a corrected answer is a wrong one
            case = _of_row(row, session)
            found.setdefault(case.case.key, case)
        if len(found) > _MOST_ROWS:
            raise CasesError(f"{source}: expected {_MOST_ROWS} rows at most in the held-out split, found more")
    if not found:
        raise CasesError(f"{source}: expected rows with a right answer in the held-out split, found none")
    return CaseSet(source, list(found.values()))


def key_of(*parts: Any) -> str:
    """Name what is asked and what is known of the right answer."""
    return hashlib.sha256(to_json(parts)).hexdigest()[:32]


def _of_row(row: HeldOutRow, session: str) -> ReportCase:
    request: dict[str, Any] = {"messages": list(row.prompt)}
    if row.tools:
        request["tools"] = list(row.tools)
    raw = message_tool_calls(row.answer)
    text = message_text(row.answer)
    metadata: dict[str, Any] = {}
    if text and not raw:
        metadata["reference"] = text
    expected = None
    if raw or row.tools:
        metadata[TOOL_CALLS] = [{"name": call.name, "arguments": call.arguments} for call in map(parsed, raw)]
        try:
            expected = [exactly(parsed(call)) for call in raw]
        except ValueError:  # a call that cannot be read is no example of a right one
            expected = None
    key = key_of(request, metadata)
    case = AskedCase(f"row-{row.digest[:16]}", key, session, request, metadata)
    return ReportCase(case, expected, due=bool(raw) if raw or row.tools else None)
