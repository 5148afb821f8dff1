"""Limits on the targets of webhooks: not this machine, its network or a cloud's metadata, unless the configuration says
so.

A name is resolved once, each address is looked at, and the connection is made to an address that was looked at. So it
does not help a name to mean another address a moment later (DNS rebinding). By public means of httpx alone: the request
is sent to the address, with the name as its Host and in TLS. The package httpx-secure makes a TCP connection first and
looks then, which already tells whether something listens there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Any

import httpx
from pydantic import BeforeValidator

from slipstream.errors import SlipstreamError
from slipstream.http.connect import ClientTls

_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
"""All that IANA gives to the public of IPv6; the rest has special uses, which Python's lists learn one by one."""
_ISATAP = (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))
"""In front of an IPv4 address as the second half of an IPv6 one (RFC 5214)."""
_NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "168.63.129.16/32",  # Azure's platform: the keys and certificates of a virtual machine
            "161.26.0.0/16",  # IBM Cloud: services of its own network
            "166.8.0.0/14",  # IBM Cloud: endpoints of its services
            "192.0.0.0/24",  # IANA's own uses, Oracle's metadata among them
            "192.88.99.0/24",  # relays of 6to4, which IANA took back
            "3fff::/20",  # documentation
        ),
    )
)
"""Addresses that mean something within a network alone and are not in Python's lists, or not in those of 3.11."""


class TargetRefused(SlipstreamError):
    """A webhook's address is a private one, and nobody allowed that."""


def _allowed(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(entry, str) and entry for entry in value):
        raise ValueError("true, false, or a list of hosts, addresses and networks such as [hooks.internal, 10.0.0.0/8]")
    for entry in value:
        if "/" in entry:
            try:
                ip_network(entry)
            except ValueError as error:
                raise ValueError(f"a network such as 10.0.0.0/8 ({error})") from error
    return tuple(value)


AllowPrivate = Annotated[bool | tuple[str, ...], BeforeValidator(_allowed)]
"""Private addresses that a webhook may be sent to: none, any, or those of these hosts, addresses and networks."""


def outgoing_client(
    allow_private: bool | tuple[str, ...], tls: ClientTls | None = None, **options: Any
) -> httpx.AsyncClient:
    """A client for webhooks, which follows no redirect. Where every address is allowed it heeds the proxies that the
    environment names; else it connects by itself, because a proxy would look names up again."""
    verify = True if tls is None else tls.context()
    if allow_private is True:
        return httpx.AsyncClient(follow_redirects=False, verify=verify, **options)
    guard = _Guard(httpx.AsyncHTTPTransport(verify=verify), allow_private)
    return httpx.AsyncClient(transport=guard, follow_redirects=False, **options)


class _Guard(httpx.AsyncBaseTransport):
    """A transport that sends requests to addresses which are allowed.

    Raises:
        TargetRefused: the host has one that is not.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, allow_private: bool | tuple[str, ...]) -> None:
        self._transport = transport
        self._allow_private = allow_private

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")  # as it is looked up: in Punycode
        addresses = await _addresses(host, request)
        if (refused := refused_address(host, addresses, self._allow_private)) is not None:
            raise TargetRefused(f"{host} has the private address {refused}, which allow_private does not name")
        extensions = {**request.extensions, "sni_hostname": host}
        for number, address in enumerate(addresses, start=1):
            sent = httpx.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=request.headers,  # with the Host that the client has made of the URL
                stream=request.stream,
                extensions=extensions,
            )
            try:
                return await self._transport.handle_async_request(sent)
            except (httpx.ConnectError, httpx.ConnectTimeout):  # nothing was sent
                if number == len(addresses):
                    raise
        raise AssertionError("unreachable: a host that was resolved has an address")

    async def aclose(self) -> None:
        await self._transport.aclose()


async def _addresses(host: str, request: httpx.Request) -> list[IPv4Address | IPv6Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, request.url.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpx.ConnectError(f"{host} cannot be resolved: {error}", request=request) from error
    return list(dict.fromkeys(ip_address(where[0]) for *_, where in found))


def refused_address(
    host: str, addresses: Iterable[IPv4Address | IPv6Address], allow_private: bool | tuple[str, ...]
) -> IPv4Address | IPv6Address | None:
    """The first of a host's addresses that a webhook may not go to; None where it may go to all of them."""
    allowed = () if isinstance(allow_private, bool) else allow_private
    if allow_private is True or host.lower() in (entry.lower() for entry in allowed):
        return None
    networks = [ip_network(entry) for entry in allowed if _is_network(entry)]
    for address in addresses:
        if not (is_public(address) or any(address in network for network in networks)):
            return address
    return None


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public and of one machine. One that carries another is judged by that."""
    if isinstance(address, IPv6Address):
        if (carried := _carried(address)) is not None:
            return is_public(carried)
        if address.teredo is not None or address not in _UNICAST:
            return False
    if any(address in network for network in _NOT_PUBLIC):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _carried(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one leads to by a translator or a tunnel."""
    if address in _NAT64 or address.packed[8:12] in _ISATAP:
        return IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour


def _is_network(entry: str) -> bool:
    try:
        ip_network(entry)
    except ValueError:
        return False
    return True
