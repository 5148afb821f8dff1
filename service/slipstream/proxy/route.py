"""An upstream of the proxy, and what is done for its exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from slipstream.http.pool import Pool
from slipstream.proxy.metrics import ProxyMetrics
from slipstream.proxy.paths import AllowedPaths
from slipstream.proxy.request import Request


class Limits(Protocol):
    """Seconds that an upstream has: `config.settings.Production` is one."""

    @property
    def first_byte_timeout(self) -> float: ...

    @property
    def idle_timeout(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Route:
    """An upstream, and what is done for its exchanges.

    Attributes:
        name: for people, at the beginning of a sentence.
        head: a request's head as it leaves; and whether its body leaves in chunks.
        tapped: whether copies are taken.
        own: what the worker answers itself, by target: JSON.
        prefixes: how the targets begin that are its own; those of no other upstream are the control API's.
        paths: what may be asked of it; None for everything.
        versioned: its base URL ends with `/v1`, so that none of its paths begins with another one.
    """

    name: str
    pool: Pool
    limits: Limits
    head: Callable[[Request], tuple[bytes, bool]]
    metrics: ProxyMetrics
    tapped: bool
    own: Mapping[bytes, bytes]
    prefixes: tuple[bytes, ...] = ()
    versioned: bool = False
    paths: AllowedPaths | None = None
