"""Keys that expire, as the training side tells of them before that happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from slipstream.access.keyring import Key
from slipstream.access.known_keys import KnownKeys

NOTICE = 7 * 86400.0
"""Seconds before a key expires from which it is told of: long enough to hand out another one amid holidays."""

State = Literal["valid", "expiring", "expired"]

STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class Expiring:
    """A key whose end is near or past.

    Attributes:
        at: Unix seconds.
    """

    name: str
    at: float


class KeyExpiry:
    """Expiry of the keys that the training side knows.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, keys: KnownKeys, clock: Callable[[], float]) -> None:
        self._keys = keys
        self._clock = clock

    def counts(self) -> dict[State, int]:
        """Number of keys in each state."""
        found = Counter(self.state(key) for key in self._keys.now())
        return {state: found[state] for state in STATES}

    def expiring(self, tenant: str | None = None) -> list[Expiring]:
        """The keys that expire soon or have expired, the first to expire first.

        Args:
            tenant: whose; None for all.
        """
        own = (key for key in self._keys.now() if tenant is None or key.scope.tenant == tenant)
        found = [
            Expiring(key.name, key.expires) for key in own if key.expires is not None and self.state(key) != "valid"
        ]
        return sorted(found, key=lambda each: each.at)

    def state(self, key: Key) -> State:
        """Return whether a key has expired, or will soon."""
        left = float("inf") if key.expires is None else key.expires - self._clock()
        return "expired" if left <= 0 else "expiring" if left <= NOTICE else "valid"
