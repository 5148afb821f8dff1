"""Tokens of answers, by what they were asked for and whose they are: counted in memory until they are stored."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

OF_ALL = ""
"""The tenant of what is of no tenant."""

_MOST = 10**9
"""Tokens of one answer: a larger number is none."""


class Kind(StrEnum):
    """Purpose of answers."""

    SHADOW = "shadow"
    """Shadow calls: the policy, by a captured request."""
    REPLAY = "replay"
    """Calls of agent replays: the policy."""
    LIVE = "live"
    """A version that answers users, in a lane."""
    EVALUATION = "evaluation"
    """A version that is evaluated."""
    EVALUATION_PRODUCTION = "evaluation_production"
    """Production, beside a version that is evaluated."""
    JUDGE = "judge"
    """Judges, whatever they judge."""


class Tokens(NamedTuple):
    """Answers, and the tokens of their prompts and of themselves."""

    answers: int
    input: int
    output: int

    def plus(self, other: Tokens) -> Tokens:
        return Tokens(self.answers + other.answers, self.input + other.input, self.output + other.output)


NONE = Tokens(0, 0, 0)

Used = dict[tuple[Kind, str], Tokens]
"""By the tenant too."""


class TokenTally:
    """Counts until what was counted is taken. Threads may count.

    Args:
        told: of each answer, for a metric.
    """

    def __init__(self, told: Callable[[Kind, Tokens], None]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._used: Used = {}

    def used(self, kind: Kind, tenant: str, answer: Any) -> None:
        """An answer came. One that does not say how many tokens it has counts as an answer without any."""
        self.add(kind, tenant, tokens_of(answer))

    def add(self, kind: Kind, tenant: str, tokens: Tokens) -> None:
        """An answer with these tokens came."""
        self._told(kind, tokens)
        self.put({(kind, tenant): tokens})

    def put(self, used: Used) -> None:
        """Add what was used; what was taken and could not be stored, too."""
        with self._lock:
            for key, tokens in used.items():
                self._used[key] = self._used.get(key, NONE).plus(tokens)

    def take(self) -> Used:
        """Take all that was counted."""
        with self._lock:
            taken, self._used = self._used, {}
        return taken


def tokens_of(answer: Any) -> Tokens:
    """Read `usage` of an answer, in OpenAI's or Anthropic's words."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    given = usage if isinstance(usage, Mapping) else {}
    return Tokens(
        1, _count(given, "prompt_tokens", "input_tokens"), _count(given, "completion_tokens", "output_tokens")
    )


def _count(usage: Mapping[str, Any], *names: str) -> int:
    found = next((usage[name] for name in names if name in usage), 0)
    return found if type(found) is int and 0 < found < _MOST else 0
