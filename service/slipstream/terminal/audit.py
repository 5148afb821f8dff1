"""`slipstream audit`: GET /audit of a running sidecar, page after page, as a table or as JSON."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from slipstream.terminal.inert import inert, json_text
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import ask
from slipstream.terminal.sidecar_http import client as open_client

_PAGE = 1000
"""Entries in one request: as many as the route gives."""

Entry = Mapping[str, Any]


def show_audit(
    url: str, key: str | None, wanted: Mapping[str, str | float | None], *, limit: int, as_json: bool
) -> None:
    """Print entries, the newest first; with `as_json` one in a line.

    Args:
        wanted: the filters of GET /audit; None is no filter.
        limit: entries at most.

    Raises:
        SlipstreamError: the sidecar cannot be reached, does not take the key, or refuses a filter.
    """
    entries = _entries(url, key, {name: value for name, value in wanted.items() if value is not None}, limit)
    if as_json:
        for entry in entries:
            print(json_text(entry))
        return
    shown = Table("at", "action", "key", "tenant", "written", "names")
    for entry in entries:
        shown.add_row(*_row(entry))
    console().print(shown)


def _entries(url: str, key: str | None, filters: Mapping[str, str | float], limit: int) -> Iterator[Entry]:
    with open_client(url, key) as client:
        cursor: int | None = None
        while limit > 0:
            query = {**filters, "limit": min(limit, _PAGE), **({} if cursor is None else {"cursor": cursor})}
            page = ask(client, "/audit", roles="admin", field="entries", query=query)
            yield from page["entries"]
            limit, cursor = limit - len(page["entries"]), page["next"]
            if cursor is None:
                return


def _row(entry: Entry) -> Iterator[str]:
    yield time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry["at"]))
    for name in ("action", "key", "tenant", "written"):
        yield "-" if entry[name] is None else str(entry[name])
    more = entry["named"] - len(entry["names"])
    names = inert(", ".join(entry["names"])) + (f" and {more} more" if more else "")
    yield f"{entry['kind']}: {names}" if entry["kind"] else "-"
