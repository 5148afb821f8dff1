"""Defence against pages of other sites where no key in a header vouches for a request: who may have it sent.

A browser lets any page send a form's `POST`, or `fetch` with `mode: "no-cors"`, to any address, this machine's too. The
page cannot read the answer, but what it asked for is done. Browsers say where a request comes from, in fields that no
page can set: `Sec-Fetch-Site`, by itself or, of older ones, and towards addresses without TLS that are not this
machine's, `Origin`. A program that is no browser sends neither.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from slipstream.http.headers import Headers
from slipstream.http.known_names import KnownNames

READS = frozenset({b"GET", b"HEAD", b"OPTIONS"})
"""Methods that change nothing: without CORS a page of another site does not see what they answer."""

_NAMES = frozenset({b"host", b"origin", b"cookie", b"sec-fetch-site", b"x-forwarded-host"})

_tells = KnownNames(_NAMES.__contains__)
"""True for the names of fields that tell of a browser."""

_OWN = (b"same-origin", b"none")
"""`none` is of the user: an address typed in, a bookmark."""

_PORTS = {"http": 80, "https": 443}
_LONGEST = 200
"""Characters of an origin that an error quotes."""


class Sender:
    """The page that had a request sent, as far as its fields tell of one.

    Args:
        proxied: whether `X-Forwarded-Host` can be believed.
    """

    def __init__(self, headers: Headers, *, proxied: bool) -> None:
        self._site = self._origin = b""
        self._hosts: list[str] = []
        for field, value in headers:
            name = field.lower()
            if name == b"sec-fetch-site":
                self._site = value.strip().lower()
            elif name == b"origin":
                self._origin = value.strip()
            elif name == b"host" or (proxied and name == b"x-forwarded-host"):
                self._hosts += [host.strip().lower() for host in value.decode("latin-1").split(",")]

    def is_foreign(self) -> str | None:
        """Name the page of another site, or another port, that this comes from; None if it comes from none."""
        if self._site:
            return None if self._site in _OWN else self._name()
        return None if not self._origin or self._is_own_origin() else self._name()

    def is_from_another_machine(self) -> str | None:
        """The same, but any page of this machine may send it, as agents that run in a browser do."""
        if self._site in _OWN:
            return None
        if not self._origin:
            return self._name() if self._site == b"cross-site" else None
        host = _split(self._origin).hostname  # to browsers, localhost and 127.0.0.1 are two sites
        own = self._is_own_origin() or (host is not None and _is_this_machine(host))
        return None if own else self._name()

    def _is_own_origin(self) -> bool:
        origin = _split(self._origin)
        default = _PORTS.get(origin.scheme)
        if default is None or origin.hostname is None:
            return False
        own = _place(origin, default)
        return any(own == _place(_split(f"//{host}".encode("latin-1")), default) for host in self._hosts)

    def _name(self) -> str:
        if self._origin and self._origin != b"null":
            return self._origin.decode("latin-1")[:_LONGEST]
        return "another site"


def telling(headers: Headers) -> Headers:
    """The fields that tell of a browser and of the host that it asks, cookies included: of a program `Host` alone."""
    return [field for field in headers if _tells[field[0]]]


def is_of_script(headers: Headers) -> bool:
    """Return whether a script of a page waits for the answer. To a challenge of `Basic` its browser would ask the
    user for a password, over the page's own form."""
    return any(field.lower() == b"sec-fetch-mode" and value.strip() != b"navigate" for field, value in headers)


def _place(url: SplitResult, default: int) -> tuple[str | None, int | None]:
    try:
        return url.hostname, url.port or default
    except ValueError:
        return url.hostname, None


def _split(text: bytes) -> SplitResult:
    try:
        return urlsplit(text.decode("latin-1"))
    except ValueError:  # brackets that hold no address
        return urlsplit("")


def _is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
