"""The findings as text for people and as JSON for programs, and the exit code for scripts."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from slipstream.doctor.findings import Finding

_WIDTH = 100
_LABELS = ("where", "found", "why", "fix")


def as_text(findings: Sequence[Finding], offline: bool) -> str:
    """A block for each finding, and a line that counts them."""
    looked = "the files alone" if offline else "the files, this machine and what runs"
    return "\n\n".join([*map(_block, findings), f"{_count(findings)} ({looked} were looked at)"]) + "\n"


def as_json(findings: Sequence[Finding], offline: bool) -> str:
    counts = {f"{severity}s": sum(each.severity == severity for each in findings) for severity in ("error", "warning")}
    told = {**counts, "offline": offline, "findings": [finding.as_dict() for finding in findings]}
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def exit_code(findings: Sequence[Finding], strict: bool) -> int:
    """1 where there is an error (strict: or a warning), else 0."""
    return int(any(strict or finding.severity == "error" for finding in findings))


def _block(finding: Finding) -> str:
    told = finding.as_dict()
    lines = [f"{finding.severity}: {finding.code}"]
    for label in _LABELS:
        indent = f"  {label:<6}"
        # a path or URL is to be copied: it is not broken
        lines += textwrap.wrap(
            told[label],
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=" " * len(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def _count(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing found"
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    words = [
        f"{count} {name}{'s' * (count != 1)}" for count, name in ((errors, "error"), (warnings, "warning")) if count
    ]
    return " and ".join(words)
