"""Requests and failed authentications of each address, counted in one worker by the clock's minutes.

The counts of a minute are thrown away at its end, and one that has many addresses puts those that come last into one
place: so the memory is bounded, whatever comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

_WINDOW = 60.0
"""Seconds."""

_MOST = 10_000
"""Addresses that are counted apart in a minute: about 2 MiB."""

_OTHERS = "others"

_NETWORK = 64
"""Bits of an IPv6 address that stand for its caller: a home or a machine is given all addresses of such a network."""


class AddressLimits:
    """
    Args:
        requests, failures: of one address in a minute, for the sidecar.
        workers: of which this is one; each has its part, rounded up.
        clock: Unix seconds.
    """

    def __init__(self, requests: int, failures: int, workers: int, clock: Callable[[], float]) -> None:
        self._requests_most = -(-requests // workers)
        self._failures_most = -(-failures // workers)
        self._clock = clock
        self._minute = 0.0
        self._requests: dict[str, int] = {}
        self._failures: dict[str, int] = {}

    def request(self, address: str) -> float | None:
        """Count a request; returns None, or the seconds until the address has some again."""
        return self._within(self._requests, address, self._requests_most)

    def failure(self, address: str) -> float | None:
        """Count a failed authentication; returns None, or the seconds until the address may fail again."""
        return self._within(self._failures, address, self._failures_most)

    def failed(self, address: str) -> float | None:
        """Return the seconds until an address that has failed as often as it may has more; None for any other."""
        minute, into = divmod(self._clock(), _WINDOW)
        place = self._place(self._failures, address)
        spent = minute == self._minute and self._failures.get(place, 0) >= self._failures_most
        return _WINDOW - into if spent else None

    def _within(self, counts: dict[str, int], address: str, most: int) -> float | None:
        minute, into = divmod(self._clock(), _WINDOW)
        if minute != self._minute:
            self._minute = minute
            self._requests.clear()
            self._failures.clear()
        place = self._place(counts, address)
        used = counts.get(place, 0)
        if used >= most:
            return _WINDOW - into
        counts[place] = used + 1
        return None

    @staticmethod
    def _place(counts: dict[str, int], address: str) -> str:
        place = _caller(address)
        return _OTHERS if place not in counts and len(counts) >= _MOST else place


@lru_cache(maxsize=4096)
def _caller(address: str) -> str:
    """The part of an address that stands for a caller; what is no address is one caller, whatever it says."""
    try:
        found = ip_address(address)
    except ValueError:
        return _OTHERS
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{int(found) >> (128 - _NETWORK):x}"
    return address
