"""The webhooks and judges that `sidecar.yaml` names: whether the sidecar may ask them, and they it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from slipstream.access.settings import is_loopback
from slipstream.doctor.endpoints import Addresses, Endpoint, endpoints, told_addresses
from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.machine import Machine
from slipstream.doctor.services import Services
from slipstream.webhooks.outgoing import refused_address

REFUSED = Problem(
    "files.webhook_refused",
    "error",
    why="A webhook may not go to this machine, its network or a cloud's metadata unless the file says so: each request "
    "is refused before it is sent. Its run has failed, or its event waits.",
    fix="Where the endpoint is meant to be there: its host, address or network in the list `allow_private` beside its "
    "`url`.",
)
TOLD_LOOPBACK = Problem(
    "files.webhook_told_loopback",
    "error",
    why="The endpoint is on another machine, and is told an address of its own: its agent finds no sidecar there, and "
    "no run comes to anything.",
    fix="`runs.webhook.base_url`: where the endpoint's machine reaches this sidecar.",
)
UNUSED = Problem(
    "files.webhook_unused",
    "warning",
    why="The endpoint is asked in the mode `webhook` alone: as it is, each call of a task is run by itself.",
    fix="`runs.mode: webhook`, or no `runs.webhook`.",
)


def private(files: Files) -> Iterator[Finding]:
    for endpoint in endpoints(files.sidecar):
        yield from _refused(files, endpoint, told_addresses(endpoint.host))


def told(files: Files) -> Iterator[Finding]:
    runs, listen = files.sidecar.runs, files.sidecar.listen
    if runs.webhook.url is not None and runs.mode != "webhook":
        yield UNUSED.at(files.in_sidecar("runs.webhook.url"), f"given, with runs.mode: {runs.mode}")
    if runs.webhook.url is None or runs.mode != "webhook":
        return
    host, base_url = urlsplit(runs.webhook.url).hostname or "", runs.webhook.base_url or listen.url
    if is_loopback(urlsplit(base_url).hostname or "") and not is_loopback(host):
        yield TOLD_LOOPBACK.at(files.in_sidecar("runs.webhook.base_url"), f"{base_url}, told to {host}")


def private_by_name(files: Files, machine: Machine, services: Services) -> Iterator[Finding]:
    for endpoint, addresses, _ in services.endpoints:
        if not told_addresses(endpoint.host):  # else the file alone said it
            yield from _refused(files, endpoint, addresses)


def _refused(files: Files, endpoint: Endpoint, addresses: Addresses) -> Iterator[Finding]:
    address = refused_address(endpoint.host, addresses, endpoint.allow_private)
    if address is not None:
        allowed = endpoint.allow_private
        names = f"names {', '.join(allowed)}" if isinstance(allowed, tuple) and allowed else "names nothing"
        found = f"{endpoint.shown}, at {address}; allow_private {names}"
        yield REFUSED.at(files.in_sidecar(endpoint.key), found)
