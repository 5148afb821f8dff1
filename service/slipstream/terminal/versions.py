"""`slipstream versions`: the versions of the policy that a running sidecar knows, kept, released and named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rich.table import Table

from slipstream.terminal.evaluations import show_verdict
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import OPERATORS, READERS, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import moment


def show_all(url: str, key: str | None, limit: int) -> None:
    """Print the newest versions as a table.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key.
    """
    with open_client(url, key) as client:
        found = ask(client, "/versions", roles=READERS, field="versions", query={"limit": limit})
    if not found["versions"]:
        print("no version is known")
        return
    table = Table("version", "state", "aliases", "kept", "serves", "reward", "runs", "verdict", "parent", "made")
    for one in found["versions"]:
        kept = "" if one["kept"] is None else f"by {one['kept']['by']}"
        table.add_row(
            str(one["version"]), one["state"], ", ".join(one["aliases"]), kept, ", ".join(one["serves"]),
            _reward(one["rewards"]), str(one["rewards"]["count"]), one["verdict"]["verdict"].replace("_", " "),
            _text(one["parent"]), moment(one["made_at"] or one["served_at"]),
        )  # fmt: skip
    console().print(table)


def show(url: str, key: str | None, version: str) -> None:
    """Print all that is known of a version.

    Raises:
        SlipstreamError: as `show_all`; also where there is no such version.
    """
    with open_client(url, key) as client:
        found = ask(client, f"/versions/{quote(version)}", roles=READERS, field="version")
    kept, trained, replaced = found["kept"], found["trained_on"] or {}, found["replaced_at"]
    lines = {
        "version": found["version"],
        "state": found["state"] + (f" since {moment(found['state_at'])}" if found["state_at"] else ""),
        "aliases": ", ".join(found["aliases"]),
        "serves": ", ".join(found["serves"]),
        "checkpoint": found["checkpoint"],
        "written": moment(found["made_at"]),
        "first known": moment(found["found_at"]),
        "served since": moment(found["served_at"]),
        "kept": kept and f"{kept['path']} (by {kept['by']}, {moment(kept['at'])})",
        "parent": found["parent"],
        "trained on": _pairs(trained),
        "metrics": _pairs(found["metrics"] or {}),
        "weights": found["weights"],
        "rewards": f"{_reward(found['rewards'])} over {found['rewards']['count']} runs",
        "number reached again": replaced and f"{moment(replaced)}: the Trainer's step of this number is another one",
    }
    for name, value in lines.items():
        if value not in (None, ""):
            print(f"{name + ':':22}{value}")
    show_verdict(found["verdict"])


def keep(url: str, key: str | None, version: str) -> None:
    """Keep the weights of a version.

    Raises:
        SlipstreamError: as `show`; also where its weights are gone, or cannot be linked.
    """
    with open_client(url, key) as client:
        path = f"/versions/{quote(version)}/keep"
        found = ask(client, path, roles=OPERATORS, field="kept", method="POST")
    print(f"version {found['version']}: kept in {found['kept']['path']}")


def release(url: str, key: str | None, version: str) -> None:
    """Delete the kept weights of a version.

    Raises:
        SlipstreamError: as `show`; also where something needs it.
    """
    with open_client(url, key) as client:
        path = f"/versions/{quote(version)}/keep"
        found = ask(client, path, roles=OPERATORS, field="version", method="DELETE")
    print(f"version {found['version']}: not kept")


def alias(url: str, key: str | None, name: str, version: int) -> None:
    """Have a name mean a version.

    Raises:
        SlipstreamError: as `keep`.
    """
    with open_client(url, key) as client:
        path = f"/aliases/{quote(name, safe='')}"
        found = ask(client, path, roles=OPERATORS, field="before", body={"version": version}, method="PUT")
    before = "" if found["before"] in (None, version) else f", and meant {found['before']}"
    unkept = "" if found["kept"] else "; its weights are not kept, as serving.checkpoints is not set"
    print(f"{name}: version {version}{before}{unkept}")


def remove_alias(url: str, key: str | None, name: str) -> None:
    """Take a name away.

    Raises:
        SlipstreamError: as `show_all`; also where there is no such name.
    """
    with open_client(url, key) as client:
        path = f"/aliases/{quote(name, safe='')}"
        found = ask(client, path, roles=OPERATORS, field="before", method="DELETE")
    print(f"{name}: removed, and meant version {found['before']}")


def show_aliases(url: str, key: str | None, name: str | None) -> None:
    """Print all aliases, or the history of one.

    Raises:
        SlipstreamError: as `show_all`.
    """
    with open_client(url, key) as client:
        if name is None:
            found = ask(client, "/aliases", roles=READERS, field="aliases")["aliases"]
            rows = [(one["name"], str(one["version"]), moment(one["changed_at"])) for one in found]
            table = Table("alias", "version", "since")
        else:
            path = f"/aliases/{quote(name, safe='')}/history"
            found = ask(client, path, roles=READERS, field="history")["history"]
            rows = [(_text(one["version"]) or "removed", moment(one["at"]), one["key"] or "") for one in found]
            table = Table("version", "from", "key")
    if not rows:
        print("there is no alias" if name is None else f"{name}: no version ever had it")
        return
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _reward(rewards: Mapping[str, Any]) -> str:
    if rewards["mean"] is None:
        return ""
    error = rewards["standard_error"]
    return f"{rewards['mean']:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _pairs(values: Mapping[str, Any]) -> str:
    known = {name: value for name, value in values.items() if value is not None}
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in known.items()
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)
