"""Answers of the running services. No check costs money: for production it only opens a connection."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from slipstream.config.address import local_url
from slipstream.doctor.endpoints import Addresses, Endpoint, endpoints, in_clear, looked_up
from slipstream.doctor.files import Files
from slipstream.doctor.rows import Rows, count_rows
from slipstream.errors import ConfigError
from slipstream.http.connect import ClientTls, proxy_for

_PATIENCE = 5.0
"""Seconds for one question."""
_LARGEST = 4 * 1024**2
"""Bytes of an answer: many times what a service of ours has to say."""
STALE = 900.0
"""Seconds after which something that should have moved has not: longer than a training step mostly takes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a service to a GET.

    Attributes:
        body: the JSON object; empty where it did not answer with one.
        error: why it did not.
        clock: seconds by which its clock is ahead of ours; None where it does not tell the time.
    """

    url: str
    body: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    clock: float | None = None

    def objects(self, key: str) -> tuple[Mapping[str, Any], ...]:
        """The JSON objects of a list in it; empty where there is none."""
        found = self.body.get(key)
        return tuple(each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


@dataclass(frozen=True, slots=True)
class Services:
    """
    Attributes:
        production: why it cannot be connected to; None where it can.
        models, metrics: the Explorer's `/v1/models` and `/metrics`.
        status: the sidecar's `/status`.
        exposed: addresses of this host, other than loopback, at which the Explorer's port answers.
        rows: the experience buffer; None where it cannot be read from here.
        endpoints: the webhooks and judges, each with its addresses and why it cannot be connected to.
        in_clear: what is asked across the internet without TLS.
        now: Unix seconds.
    """

    production: str | None
    models: Answer
    metrics: Answer
    status: Answer
    exposed: Sequence[str]
    rows: Rows | None
    endpoints: Sequence[tuple[Endpoint, Addresses, str | None]]
    in_clear: Sequence[Endpoint]
    now: float

    @property
    def engine_versions(self) -> tuple[int, ...]:
        """The version that each engine of the Explorer serves."""
        found = (value for name, value in self.metrics.body.items() if name.endswith("/model_version"))
        return tuple(value for value in found if isinstance(value, int))


def look_at_services(files: Files, addresses: Sequence[str] | None = None) -> Services:
    """
    Args:
        addresses: those of this host at which nobody should reach the Explorer; by default all but loopback.
    """
    explorer, listen = files.sidecar.explorer.base_url, files.sidecar.listen
    with _client((files.sidecar.explorer.tls or ClientTls()).context()) as client:
        metrics = ask(client, f"{explorer}/metrics")
        models = ask(client, f"{explorer}/v1/models") if metrics.error is None else Answer(f"{explorer}/v1/models")
    own = local_url(listen.host, listen.port, "http" if listen.tls is None else "https")
    with _client(ClientTls().context()) as client:
        key = os.environ.get("SLIPSTREAM_API_KEY")
        client.headers.update({"x-slipstream-key": key} if key else {})
        status = ask(client, f"{own}/status")
    port = files.explorer.whole("explorer.proxy_port")
    return Services(
        production=connects(files.sidecar.production.base_url, os.environ),
        models=models,
        metrics=metrics,
        status=status,
        exposed=_exposed(explorer, port, _outer_addresses() if addresses is None else addresses),
        rows=count_rows(files.trainer.buffer_url, files.trainer.buffer_table, STALE),
        endpoints=[
            (each, looked_up(each.host), connects(each.url, os.environ if each.by_proxy else {}))
            for each in endpoints(files.sidecar)
        ],
        in_clear=[*in_clear(files.sidecar)],
        now=time.time(),
    )


def _client(tls: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(timeout=_PATIENCE, trust_env=False, verify=tls)


def ask(client: httpx.Client, url: str, patience: float = 2 * _PATIENCE) -> Answer:
    """
    Args:
        patience: seconds for the whole answer.
    """
    until = time.monotonic() + patience
    text = bytearray()
    try:
        with client.stream("GET", url) as response:
            response.raise_for_status()
            for piece in response.iter_bytes():
                text += piece
                if len(text) > _LARGEST or time.monotonic() > until:
                    return Answer(url, error="answers without end")
        body = json.loads(text)
    except httpx.HTTPStatusError as error:
        return Answer(url, error=f"answers {error.response.status_code}")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Answer(url, error=f"{type(error).__name__} {error}".rstrip())
    except (ValueError, RecursionError):
        return Answer(url, error="answers no JSON")
    if not isinstance(body, dict):
        return Answer(url, error="answers no JSON object")
    return Answer(url, body, clock=_clock(response))


def _clock(response: httpx.Response) -> float | None:
    try:
        return parsedate_to_datetime(response.headers["date"]).timestamp() - time.time()
    except (KeyError, ValueError, TypeError):
        return None


def connects(base_url: str, environment: Mapping[str, str]) -> str | None:
    """Return why no connection can be opened there; None if one can.

    Args:
        environment: its HTTP proxy, if it names one for this address, is connected to in its place.
    """
    url = urlsplit(base_url)
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    way = ""
    try:
        if (proxy := proxy_for(url.scheme, host, port, environment)) is not None:
            host, port, way = proxy.host, proxy.port, f"through the HTTP proxy {proxy.address}: "
        socket.create_connection((host, port), _PATIENCE).close()
    except ConfigError as error:
        return str(error)
    except OSError as error:
        return f"{way}{error.strerror or error}"
    except UnicodeError:
        return "no name of a host"
    return None


def _outer_addresses() -> tuple[str, ...]:
    """This host's addresses that others can reach. In a container it is the container's network that protects it."""
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() or "KUBERNETES_SERVICE_HOST" in os.environ:
        return ()
    found = set()
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # connecting a datagram socket sends nothing; the system only chooses the address that it would send from
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            try:
                asked.connect((far, 9))
                found.add(asked.getsockname()[0])
            except OSError:
                continue
    return tuple(sorted(each for each in found if not ipaddress.ip_address(each.partition("%")[0]).is_loopback))


def _exposed(explorer_url: str, port: int, addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses at which the Explorer answers, if it runs on this host (on loopback)."""
    if urlsplit(explorer_url).hostname not in ("127.0.0.1", "localhost", "::1"):
        return ()
    found = []
    for address in addresses:
        try:
            socket.create_connection((address, urlsplit(explorer_url).port or port), 2).close()
        except OSError:
            continue
        found.append(address)
    return tuple(found)
