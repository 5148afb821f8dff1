"""Budget of the policy's runs and of judges in any hour, because GPU time costs money. All sidecars of a store share
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.metrics import Metrics
from slipstream.store import budget
from slipstream.store.budget import Purpose, Spent
from slipstream.store.database import Database

_log = structlog.get_logger(__name__)

TICK = 2.0
"""Seconds between two looks at what is spent."""


class Budget:
    """Requests and tokens of an hour.

    What is under way when the tokens are used up comes to its end, so that they can be exceeded by as much.

    Args:
        requests, tokens: of any hour; None for no limit. Without any nothing is counted.
        clock: Unix seconds.

    Attributes:
        spent: within the last hour, when it was looked at last.
        open: there was something left then.
    """

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        purpose: Purpose,
        *,
        requests: int | None,
        tokens: int | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._purpose: Purpose = purpose
        self._clock = clock
        self.limits = {"requests": requests} | ({"tokens": tokens} if purpose == "runs" else {})
        self.limited = requests is not None or tokens is not None
        self.spent = Spent(0, 0)
        self.open = True
        self.unstored = 0
        """Tokens of answers that are not in the store yet."""
        for kind, limit in self.limits.items():
            if limit is not None:
                metrics.budget.labels(purpose, kind).set(limit)
            if self.limited:
                metrics.budget_spent.labels(purpose, kind).set(0)

    async def step(self) -> bool:
        """Look at what is spent, in a worker's step."""
        if self.limited:
            now = self._clock()
            async with self._database.read() as session:
                self._look(await budget.spent(session, self._purpose, now))
        return False

    async def room(self, session: AsyncSession, wanted: int, now: float) -> int:
        """Return how many of the wanted requests may be made, within a transaction that no other sidecar shares."""
        if not self.limited or not wanted:
            return wanted
        found = await budget.spent(session, self._purpose, now)
        self._look(Spent(found.requests, found.tokens + self.unstored))
        requests = self.limits["requests"]
        left = wanted if requests is None else max(0, requests - found.requests)
        return min(wanted, left) if self.open else 0

    async def spend(self, session: AsyncSession, requests: int, tokens: int, now: float) -> None:
        """So many requests are made, and answers had so many tokens."""
        if self.limited and (requests or tokens):
            await budget.spend(session, self._purpose, requests, tokens, now)
            await budget.forget(session, now)

    def used(self, answer: Mapping[str, Any]) -> None:
        """An answer came, whose tokens are to be stored."""
        self.unstored += tokens_of(answer)

    def as_dict(self) -> dict[str, dict[str, int | None]]:
        """For people: what is spent, null where nothing is counted, and the limits."""
        return {
            kind: {"spent_last_hour": getattr(self.spent, kind) if self.limited else None, "limit": limit}
            for kind, limit in self.limits.items()
        }

    def _look(self, found: Spent) -> None:
        self.spent = found
        left = [limit is None or getattr(found, kind) < limit for kind, limit in self.limits.items()]
        for kind in self.limits:
            self._metrics.budget_spent.labels(self._purpose, kind).set(getattr(found, kind))
        if all(left) is not self.open:
            _log.warning("budget_has_room" if all(left) else "budget_spent", purpose=self._purpose, **self.limits)
        self.open = all(left)


def tokens_of(answer: Mapping[str, Any]) -> int:
    """Return the tokens that a chat completion used by the Explorer's count, prompt included; 0 if it does not say."""
    usage = answer.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return total if type(total) is int and total > 0 else 0
