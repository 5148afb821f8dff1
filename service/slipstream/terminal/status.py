"""`slipstream status`: GET /status of a running sidecar, once or again and again, as a table or as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console, RenderableType
from rich.live import Live

from slipstream.errors import SlipstreamError
from slipstream.settings.source import load_settings
from slipstream.terminal.table import table
from slipstream.terminal.waiting import waiting

_PATIENCE = 10.0
_DEFAULT_URL = "http://127.0.0.1:8100"


def address(url: str | None, config: Path, environment: Mapping[str, str]) -> str:
    """Return the URL of the sidecar: the given one, else the one in its file, else the default.

    Raises:
        ConfigError: the file is wrong.
    """
    if url is not None:
        return url.rstrip("/")
    return load_settings(config, environment).listen.url if config.is_file() else _DEFAULT_URL


def show(url: str, key: str | None, *, as_json: bool, every: float | None) -> None:
    """Print the status; with `every`, again after so many seconds until Ctrl-C.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key. While watching it is waited for.
    """
    with _client(url, key) as client:
        if every is None:
            with waiting(f"{url} to answer"):
                found = _ask(client, url)
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
            print(json.dumps(_ask(client, url)), flush=True)
            time.sleep(every)
    since: str | None = None
    shown: RenderableType = f"waiting for {url}"
    with Live(shown, console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            try:
                found = _ask(client, url)
            except SlipstreamError as error:
                since = since or time.strftime("%H:%M:%S")
                shown = f"{error}\nwaited for since {since}"
            else:
                since, shown = None, table(found, url)
            live.update(shown, refresh=True)
            time.sleep(every)


def _client(url: str, key: str | None) -> httpx.Client:
    headers = {"x-slipstream-key": key} if key else {}
    try:
        return httpx.Client(base_url=url, headers=headers, timeout=_PATIENCE, trust_env=False)
    except (httpx.InvalidURL, UnicodeEncodeError) as error:
        raise SlipstreamError(f"--url, --key: expected a URL, and a key of ASCII letters ({error})") from error


def _ask(client: httpx.Client, url: str) -> dict[str, Any]:
    try:
        response = client.get("/status")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SlipstreamError(
            f"no sidecar answers at {url} ({type(error).__name__} {error}); is it running? --url names another"
        ) from error
    if response.status_code in (401, 403):
        raise SlipstreamError(
            f"{url} asks for a key: give one with the role metrics or admin by --key or SLIPSTREAM_API_KEY "
            f"({response.status_code})"
        )
    try:
        found = response.json()
    except ValueError:
        found = None
    if response.status_code != httpx.codes.OK or not isinstance(found, dict) or "slipstream" not in found:
        raise SlipstreamError(
            f"{url}/status: expected a sidecar's status, found {response.status_code} {response.text[:200]}"
        )
    return found
