"""`slipstream status`: GET /status of a running sidecar, as a table or as JSON."""

from __future__ import annotations

from typing import Any

import httpx

from slipstream.terminal.inert import json_text
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import READERS, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.table import table
from slipstream.terminal.waiting import waiting


def show(url: str, key: str | None, *, as_json: bool) -> None:
    """Print the status.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key.
    """
    with open_client(url, key) as client, waiting(f"{url} to answer"):
        found = ask_status(client)
    if as_json:
        print(json_text(found, indent=2))
    else:
        console().print(table(found, url))


def ask_status(client: httpx.Client) -> dict[str, Any]:
    """The answer of GET /status.

    Raises:
        SidecarAway: the sidecar cannot be reached, or has failed.
        SlipstreamError: it does not take the key.
    """
    return ask(client, "/status", roles=READERS, field="slipstream")
