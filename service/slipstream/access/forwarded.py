"""Headers of proxies in front that name the caller, believed only from trusted proxies.

They are passed on to production; limits count by the caller's address, and the log line of a refusal names it.
They let nobody in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address

from slipstream.http.headers import Headers

_FIELDS = frozenset({b"forwarded", b"x-real-ip"})
_PREFIX = b"x-forwarded-"


class Forwarded:
    """
    Args:
        trusted: networks of the proxies in front. Without any, all fields pass as they came, and none is believed.
    """

    def __init__(self, trusted: Sequence[IPv4Network | IPv6Network]) -> None:
        self._trusted = tuple(trusted)
        self._trusts = lru_cache(maxsize=4096)(self._is_trusted)

    @property
    def configured(self) -> bool:
        return bool(self._trusted)

    def believed(self, headers: Headers, peer: str) -> Headers:
        """The fields without those that a peer outside the trusted networks may have made up."""
        if self._trusts(peer):
            return headers
        return [field for field in headers if not _is_forwarded(field[0].lower())]

    def caller(self, headers: Headers, peer: str) -> str:
        """Return the address of the caller: the last in `x-forwarded-for` that is not a trusted proxy."""
        if not self._trusts(peer):
            return peer
        said = b",".join(value for name, value in headers if name.lower() == b"x-forwarded-for")
        hops = [hop.strip() for hop in said.decode("latin-1").split(",") if hop.strip()]
        return next((hop for hop in reversed(hops) if not self._trusts(hop)), peer)

    def _is_trusted(self, address: str) -> bool:
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._trusted)


def _is_forwarded(name: bytes) -> bool:
    return name.startswith(_PREFIX) or name in _FIELDS
