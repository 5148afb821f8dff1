"""Defence against DNS rebinding where no key is required: which web pages a request may come from.

A browser lets a page talk to the host that it came from, and goes by the name. Whoever owns `evil.example` lets it mean
127.0.0.1 once the page is loaded, and the page then reads and does here whatever may be done without a key. Its
requests still say `Host: evil.example`. What cannot be pointed elsewhere passes: an address, and `localhost` with the
names below it, which browsers look up nowhere (RFC 6761, section 6.3).
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address

from slipstream.http.headers import Headers

_HOST = re.compile(rb"(?:\[(?P<literal>[^\]]+)\]|(?P<name>[^:]*))(?::[0-9]*)?")


def foreign_host(headers: Headers) -> str | None:
    """The name in `Host` that somebody else may have given to this machine; None where there is none.

    A browser sends `Host` with each request, so that a request without one is no page's.
    """
    for name, value in headers:
        if len(name) == 4 and name.lower() == b"host" and _is_foreign(value):
            return value.decode("latin-1")
    return None


@lru_cache(maxsize=256)
def _is_foreign(value: bytes) -> bool:
    found = _HOST.fullmatch(value.strip())
    if found is None:
        return True
    host = (found["literal"] or found["name"]).decode("latin-1").lower().removesuffix(".")
    if not host or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
