"""`slipstream quarantine`: what a running sidecar has set apart, shown and released."""

from __future__ import annotations

import httpx
from rich.table import Table

from slipstream.errors import SlipstreamError
from slipstream.terminal.inert import inert
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import moment


def show(url: str, key: str | None) -> None:
    """Print what is set apart as a table.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key.
    """
    with open_client(url, key) as client:
        found = ask(client, "/quarantine", roles="admin", field="quarantined")["quarantined"]
    if not found:
        print("nothing is set apart")
        return
    table = Table("kind", "id", "task", "since", "reason")
    for one in found:
        names = (inert(one["id"]), inert(one["task_id"] or ""))
        table.add_row(one["kind"], *names, moment(one["since"]), inert(one["reason"]))
    console().print(table)


def release(url: str, key: str | None, action: str, kind: str | None, name: str | None) -> None:
    """Have it tried again or given up, and print how much of it was.

    Raises:
        SlipstreamError: as `show`; also for an id without a kind, and if nothing of this id is set apart.
    """
    body = {"action": action, "kind": kind, "id": name}
    given = {field: value for field, value in body.items() if value is not None}
    with open_client(url, key) as client:
        done = ask(client, "/quarantine", roles="admin", field="changed", body=given)
        if name is not None and not done["changed"] and not _is_apart(client, kind, name):
            raise SlipstreamError(f"--id: nothing of the kind {kind} with the id {inert(name)} is set apart")
    print(f"{action}: {done['changed']}, still set apart: {done['left']}")


def _is_apart(client: httpx.Client, kind: str | None, name: str) -> bool:
    """Return whether it is set apart still: a run whose group was delivered without it cannot be tried again."""
    found = ask(client, "/quarantine", roles="admin", field="quarantined")["quarantined"]
    return any((one["kind"], one["id"]) == (kind, name) for one in found)
