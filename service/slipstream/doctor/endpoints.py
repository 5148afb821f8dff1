"""The services that `sidecar.yaml` tells the sidecar to ask, and where they are."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from slipstream.rewards.calculators.judge import Judge
from slipstream.rewards.calculators.webhook import Webhook
from slipstream.settings.sidecar import Settings
from slipstream.webhooks.outgoing import is_public

Addresses = tuple[IPv4Address | IPv6Address, ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """
    Attributes:
        key: what names it in `sidecar.yaml`.
        url: where it is.
        allow_private: which private addresses it may have, as `outgoing` says.
    """

    key: str
    url: str
    allow_private: bool | tuple[str, ...] = True

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def by_proxy(self) -> bool:
        """Return whether it is asked through the HTTP proxy that the environment names, as `outgoing` says."""
        return self.allow_private is True

    @property
    def shown(self) -> str:
        """Its address without what may be a secret: user, password and query."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def endpoints(settings: Settings) -> Iterator[Endpoint]:
    """The webhook of replays, where it is used, the receivers of events, and the webhooks and judges among the
    calculators."""
    replay = settings.runs.webhook
    if settings.runs.mode == "webhook" and replay.url is not None:
        yield Endpoint("runs.webhook.url", replay.url, replay.allow_private)
    for place, receiver in enumerate(settings.webhooks.receivers):
        yield Endpoint(f"webhooks.receivers.{place}.url", receiver.url, receiver.allow_private)
    for number, spec in enumerate(settings.rewards.calculators):
        calculator, key = spec.parameters, f"rewards.calculators.{number}.{spec.name}"
        if isinstance(calculator, Webhook):
            yield Endpoint(f"{key}.url", calculator.url, calculator.allow_private)
        elif isinstance(calculator, Judge):
            yield Endpoint(f"{key}.base_url", calculator.base_url)


def in_clear(settings: Settings) -> Iterator[Endpoint]:
    """Whatever is asked across the internet without TLS."""
    own = (Endpoint("production.base_url", settings.production.base_url),
           Endpoint("explorer.base_url", settings.explorer.base_url))  # fmt: skip
    for endpoint in (*own, *endpoints(settings)):
        if urlsplit(endpoint.url).scheme == "http" and any(map(is_public, looked_up(endpoint.host))):
            yield endpoint


def told_addresses(host: str) -> Addresses:
    """The addresses that a host's name says by itself; none of a name that has to be looked up."""
    try:
        return (ip_address(host),)
    except ValueError:
        loopback = host == "localhost" or host.endswith(".localhost")  # RFC 6761
        return (IPv4Address("127.0.0.1"),) if loopback else ()


def looked_up(host: str) -> Addresses:
    """The addresses of a host as this machine finds them; none where it finds none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(ip_address(where[0]) for *_, where in found))
