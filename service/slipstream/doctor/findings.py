"""A finding of the doctor: one fault, in words for the person who repairs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong here.

    Attributes:
        code: what is wrong, for scripts and alerts; `docs/doctor.md` has one row for each.
        severity: error where training stops, is lost or harms; warning where it may.
        where: the file and key, the path or the service.
        found: what is there, with its numbers.
    """

    code: str
    severity: Severity
    where: str
    found: str
    why: str
    fix: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Problem:
    """A thing that can be wrong anywhere: what all findings of one code have in common."""

    code: str
    severity: Severity
    why: str
    fix: str

    def at(self, where: str, found: str) -> Finding:
        """This problem, found at a place."""
        return Finding(self.code, self.severity, where, found, self.why, self.fix)
