"""`slipstream status`: GET /status of a running sidecar, once or again and again, as a table or as JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
from rich.console import Console, RenderableType
from rich.live import Live

from slipstream.errors import SlipstreamError
from slipstream.terminal.sidecar_http import READERS, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.table import table
from slipstream.terminal.waiting import waiting


def show(url: str, key: str | None, *, as_json: bool, every: float | None) -> None:
    """Print the status; with `every`, again after so many seconds until Ctrl-C.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key. While watching it is waited for.
    """
    with open_client(url, key) as client:
        if every is None:
            with waiting(f"{url} to answer"):
                found = _ask(client)
            if as_json:
                print(json.dumps(found, indent=2))
            else:
                Console().print(table(found, url))
            return
        try:
            _watch(client, url, every, as_json)
        except KeyboardInterrupt:
            return


def _watch(client: httpx.Client, url: str, every: float, as_json: bool) -> None:
    if as_json:
        while True:
            print(json.dumps(_ask(client)), flush=True)
            time.sleep(every)
    since: str | None = None
    shown: RenderableType = f"waiting for {url}"
    with Live(shown, console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            try:
                found = _ask(client)
            except SlipstreamError as error:
                since = since or time.strftime("%H:%M:%S")
                shown = f"{error}\nwaited for since {since}"
            else:
                since, shown = None, table(found, url)
            live.update(shown, refresh=True)
            time.sleep(every)


def _ask(client: httpx.Client) -> dict[str, Any]:
    return ask(client, "/status", roles=READERS, field="slipstream")
