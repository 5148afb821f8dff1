"""`slipstream evaluate`: an evaluation asked for, waited for and shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import httpx
from rich.table import Table

from slipstream.terminal.inert import inert
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import OPERATORS, READERS, ask
from slipstream.terminal.sidecar_http import client as open_client

_LOOK = 0.5
_OPEN = ("pending", "running")


def evaluate(url: str, key: str | None, version: str | None, suite: str | None, *, wait: bool) -> bool:
    """Ask for an evaluation, wait for its end, and print its result.

    Returns:
        False for one that failed, or whose version was not served to its end.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or refuses the evaluation.
    """
    body = {"version": int(version) if version is not None and version.isdecimal() else version, "suite": suite}
    with open_client(url, key) as client:
        found = ask(client, "/evaluations", roles=OPERATORS, field="suite", body=body)
        print(f"evaluation {found['id']} of version {found['version']} on {found['suite']}")
        if not wait:
            return True
        found = _ended(client, found["id"])
        if found["state"] != "done":
            print(f"{found['state']}: {inert(found['reason'] or '')}")
            return False
        _show(found)
        show_verdict(ask(client, f"/versions/{found['version']}", roles=READERS, field="verdict")["verdict"])
    return True


def show_verdict(verdict: Mapping[str, Any]) -> None:
    """Print a verdict with what each source says."""
    words = verdict["verdict"].replace("_", " ")
    print(f"verdict: {words}")
    if not verdict["sources"]:
        return
    table = Table("source", "against", "verdict", "difference", "interval", "sessions", "missing")
    for one in verdict["sources"]:
        name = f"suite {one['suite']}" if one["source"] == "evaluation" else f"rollout {one['rollout']}"
        against = one["against"] + (f" ({one['champion']})" if "champion" in one else "")
        low, high = one["interval"]
        table.add_row(
            name, against, one["verdict"].replace("_", " "), _number(one["difference"], "+.3f"),
            f"{low:+.3f} to {high:+.3f}", str(one["sessions"]), _missing(one["missing"]),
        )  # fmt: skip
    console().print(table)


def _ended(client: httpx.Client, number: int) -> dict[str, Any]:
    told = None
    while True:
        found = ask(client, f"/evaluations/{number}", roles=READERS, field="state")
        if found["state"] not in _OPEN:
            return found
        if found["waits"] not in (None, told):
            told = found["waits"]
            print(f"waiting: {told}", file=sys.stderr)
        time.sleep(_LOOK)


def _show(found: Mapping[str, Any]) -> None:
    result = found["result"]
    threshold = found["settings"]["threshold"]
    table = Table("", "reward", f"at {threshold:g} or more", "cases", "sessions", "answers")
    for arm in ("version", "production"):
        if (one := result[arm]) is None:
            continue
        rows = {arm: one["reward"]} | {f"  {name}": sums for name, sums in one["components"].items()}
        for name, sums in rows.items():
            first = name == arm
            rate = one["success_rate"]
            counts = ", ".join(f"{count} {outcome}" for outcome, count in one["answers"].items())
            table.add_row(
                name, _mean(sums), f"{rate:.0%}" if first and rate is not None else "", str(sums["count"]),
                str(sums["sessions"]), counts if first else "",
            )  # fmt: skip
    console().print(table)


def _mean(sums: Mapping[str, Any]) -> str:
    error = sums["standard_error"]
    return _number(sums["mean"], ".3f") + ("" if error is None else f" ± {error:.3f}")


def _missing(missing: Mapping[str, Any] | None) -> str:
    if missing is None:
        return ""
    return "cannot be foreseen" if missing["sessions"] is None else f"about {missing['sessions']} sessions"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
