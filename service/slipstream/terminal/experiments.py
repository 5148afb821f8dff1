"""`slipstream experiment`: the experiments of a running sidecar, shown, started and stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from slipstream.terminal.inert import inert
from slipstream.terminal.rollouts import read_plan
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import OPERATORS, READERS, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import moment, span


def start(url: str, key: str | None, fields: Mapping[str, Any], plan: Path | None) -> None:
    """Start an experiment, and print its number.

    Args:
        fields: of `POST /experiments`; those that are None are left out.
        plan: a file with its other fields.

    Raises:
        SlipstreamError: the file cannot be read, the sidecar cannot be reached, or it refuses the experiment.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    body = {**({} if plan is None else read_plan(plan)), **given}
    with open_client(url, key) as client:
        started = ask(client, "/experiments", roles=OPERATORS, field="state", body=body)
    print(f"{_named(started)}: {started['state']}, {inert(started['reason'])}")


def show_all(url: str, key: str | None) -> None:
    """Print the newest experiments as a table.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key.
    """
    with open_client(url, key) as client:
        found = ask(client, "/experiments", roles=READERS, field="experiments")["experiments"]
    if not found:
        print("there is no experiment")
        return
    table = Table("experiment", "name", "a", "b", "state", "share of b", "winner", "started", "reason")
    for one in found:
        row = (str(one["id"]), inert(one["name"]), one["a"], one["b"], one["state"], f"{one['share']:.0%}")
        table.add_row(*row, one["winner"] or "", moment(one["started_at"]), inert(one["reason"] or ""))
    console().print(table)


def show(url: str, key: str | None, experiment: int) -> None:
    """Print an experiment: its report, what is missing, and its decisions.

    Raises:
        SlipstreamError: as `show_all`, or there is no such experiment.
    """
    with open_client(url, key) as client:
        found = ask(client, f"/experiments/{experiment}", roles=READERS, field="report")
    screen = console()
    for line in _head(found):
        print(line)
    metrics = Table("metric", "unit", "a", "b", "difference", "interval", "evidence", "proven")
    for name, one in found["report"]["metrics"].items():
        marked = f"{name} (primary)" if one["primary"] else name
        metrics.add_row(marked, one["unit"], *_measured(one), *_claims(one))
    screen.print(metrics)
    decisions = Table("at", "decision", "state", "share of b", "winner", "by", "reason")
    for one in found["decisions"]:
        row = (moment(one["at"]), one["action"], one["state"], f"{one['share']:.0%}", one["winner"] or "")
        decisions.add_row(*row, one["key"] or "", inert(one["reason"] or ""))
    screen.print(decisions)


def stop(url: str, key: str | None, experiment: int, decision: str | None, *, force: bool) -> None:
    """End an experiment, and print who answers the users.

    Raises:
        SlipstreamError: as `show`, or the experiment cannot end like that.
    """
    body: dict[str, Any] = {
        **({} if decision is None else {"decision": decision}),
        **({"force": True} if force else {}),
    }
    with open_client(url, key) as client:
        found = ask(client, f"/experiments/{experiment}/stop", roles=OPERATORS, field="state", body=body)
    by = "production answers the users"
    if found["rollout"] is not None:
        by = f"{found['b']} answers the users, by rollout {found['rollout']}"
    print(f"{_named(found)}: {found['state']}, {by}")


def _named(found: Mapping[str, Any]) -> str:
    return f"experiment {found['id']}, {inert(found['name'])}: a {found['a']}, b {found['b']}"


def _head(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{_named(found)}: {found['state']}, share of b {found['share']:.0%}"
    arms = found["report"]["arms"]
    yield f"units: {arms['a']['units']} of a, {arms['b']['units']} of b"
    if found["winner"] is not None:
        yield f"winner: {found['winner']}"
    missing = found["missing"]
    if missing["seconds"] is not None:
        yield f"ends in {span(missing['seconds'])}"
    for reason in (*missing["reasons"], *filter(None, [missing["lane"]])):
        yield f"missing: {inert(reason)}"


def _measured(one: Mapping[str, Any]) -> Iterator[str]:
    for value in (one["a"]["mean"], one["b"]["mean"], one["difference"]):
        yield "" if value is None else f"{value:.4g}"
    yield f"{one['interval'][0]:+.4g} to {one['interval'][1]:+.4g}"


def _claims(one: Mapping[str, Any]) -> Iterator[str]:
    """The evidence for each result, and those that are proven."""
    words = {name: name.replace("_", " ") for name in one["claims"]}
    yield ", ".join(
        f"{words[name]} {claim['log_e']:.1f} of {claim['needed']:.1f}"
        + (f", about {claim['missing']} units more" if claim["missing"] else "")
        for name, claim in one["claims"].items()
    )
    proven = ", ".join(words[name] for name, claim in one["claims"].items() if claim["proven"])
    yield proven if one["comparable"] else "not comparable"
