"""The address at which a program can be reached from its own machine."""

from __future__ import annotations

import ipaddress


def local_url(host: str, port: int, scheme: str = "http") -> str:
    """The URL of a program that listens at `host`, which may stand for all addresses of this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"{scheme}://{host}:{port}"
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    name = f"[{address}]" if address.version == 6 else str(address)
    return f"{scheme}://{name}:{port}"
