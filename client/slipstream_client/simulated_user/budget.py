"""Budget of a simulated user, in calls and tokens, of a run and of a group of runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields

from slipstream_client.simulated_user.errors import SimulatedUserError


@dataclass(frozen=True)
class UserBudget:
    """Limits of a simulated user; None for no limit.

    Tokens are known once they are spent: the call that reaches a limit is answered, and the next one is not made. Of a
    group whose runs call at the same time, each run may be one call beyond.

    Attributes:
        run_calls, group_calls: requests to its model, attempts that failed included.
        run_tokens, group_tokens: of prompts and answers together, as its endpoint counts them.

    Raises:
        ValueError: a limit is no whole number of at least 1.
    """

    run_calls: int | None = None
    run_tokens: int | None = None
    group_calls: int | None = None
    group_tokens: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            limit = getattr(self, each.name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
                raise ValueError(f"budget.{each.name}: expected a whole number of at least 1, or None, found {limit!r}")

    @property
    def counts_tokens(self) -> bool:
        """True if the endpoint must say how many tokens a call took."""
        return self.run_tokens is not None or self.group_tokens is not None


class Spent:
    """Calls and tokens so far, of one run or one group. Any thread may add to them.

    Args:
        whose: `run` or `group`, for people.
    """

    def __init__(self, whose: str, calls: int | None, tokens: int | None) -> None:
        self._whose = whose
        self._most_calls = calls
        self._most_tokens = tokens
        self._lock = threading.Lock()
        self.calls = 0
        self.tokens = 0

    def begin(self) -> None:
        """Count a call that is about to be made. Raises SimulatedUserError if there is nothing left for it."""
        with self._lock:
            for name, spent, most in (
                ("calls", self.calls, self._most_calls),
                ("tokens", self.tokens, self._most_tokens),
            ):
                if most is not None and spent >= most:
                    raise SimulatedUserError(
                        "user_budget", f"the simulated user has spent {spent} of {most} {name} of this {self._whose}"
                    )
            self.calls += 1

    def took(self, tokens: int) -> None:
        """Count the tokens of a call that was answered."""
        with self._lock:
            self.tokens += tokens


class Purse:
    """Limits of one conversation: those of its run, and of its group, if it has one.

    Args:
        needs_tokens: tokens are limited, so each answer must say how many it took.
    """

    def __init__(self, spent: Sequence[Spent], needs_tokens: bool) -> None:
        self._spent = spent
        self._needs_tokens = needs_tokens

    def begin(self) -> None:
        """See `Spent.begin`."""
        for each in self._spent:
            each.begin()

    def took(self, tokens: int | None) -> None:
        """See `Spent.took`. Raises SimulatedUserError if the number is not known and needed."""
        if tokens is None and self._needs_tokens:
            raise SimulatedUserError(
                "user_failed", "the simulated user has a budget of tokens, and its model counts none"
            )
        for each in self._spent:
            each.took(tokens or 0)
