"""The first part of a call for which the chat form has no word."""

from __future__ import annotations

from slipstream.dialects.form import Problem


class Findings:
    """Collects why a call has no chat form.

    Attributes:
        first: the first reason, and the field that gave it; None if the chat form says all.
    """

    def __init__(self) -> None:
        self.first: tuple[Problem, str] | None = None

    def add(self, problem: Problem, at: str) -> None:
        if self.first is None:
            self.first = problem, at

    @property
    def problem(self) -> Problem | None:
        return self.first and self.first[0]
