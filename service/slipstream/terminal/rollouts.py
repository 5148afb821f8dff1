"""`slipstream rollout`: the rollouts of a running sidecar, shown and decided about by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from slipstream.errors import SlipstreamError
from slipstream.terminal.inert import inert
from slipstream.terminal.screen import console
from slipstream.terminal.sidecar_http import OPERATORS, READERS, ask
from slipstream.terminal.sidecar_http import client as open_client
from slipstream.terminal.spans import moment, span


def start(url: str, key: str | None, version: int, plan: Path | None, *, replace: bool) -> None:
    """Open a rollout, and print its number.

    Args:
        plan: a file with the other fields of `POST /rollouts`.

    Raises:
        SlipstreamError: the file cannot be read, the sidecar cannot be reached, or it refuses the rollout.
    """
    body: dict[str, Any] = {**({} if plan is None else read_plan(plan)), "version": version}
    if replace:
        body["replace"] = True
    with open_client(url, key) as client:
        opened = ask(client, "/rollouts", roles=OPERATORS, field="state", body=body)
    print(f"rollout {opened['id']} of version {version}: {opened['state']}, {inert(opened['reason'])}")


def show_all(url: str, key: str | None) -> None:
    """Print the newest rollouts as a table.

    Raises:
        SlipstreamError: the sidecar cannot be reached, or does not take the key.
    """
    with open_client(url, key) as client:
        found = ask(client, "/rollouts", roles=READERS, field="rollouts")["rollouts"]
    if not found:
        print("there is no rollout")
        return
    table = Table("rollout", "version", "state", "share", "opened", "reason")
    for one in found:
        row = (str(one["id"]), str(one["version"]), one["state"], f"{one['share']:.0%}", moment(one["opened_at"]))
        table.add_row(*row, inert(one["reason"] or ""))
    console().print(table)


def show(url: str, key: str | None, rollout: int) -> None:
    """Print a rollout: its evidence, what is missing, and its decisions.

    Raises:
        SlipstreamError: as `show_all`, or there is no such rollout.
    """
    with open_client(url, key) as client:
        found = ask(client, f"/rollouts/{rollout}", roles=READERS, field="evidence")
    screen = console()
    for line in _head(found):
        print(line)
    measures = Table("measure", "control", "treatment", "difference", "interval", "evidence", "proven")
    for name, one in found["evidence"]["guardrails"].items():
        measures.add_row(name, *_measured(one), *_claims(harm=one["harm"], not_worse=one["not_worse"]))
    objective = found["evidence"]["objective"]
    measures.add_row(objective["value"], *_measured(objective), *_claims(better=objective["better"]))
    screen.print(measures)
    decisions = Table("at", "decision", "state", "share", "by", "reason")
    for one in found["decisions"]:
        row = (
            moment(one["at"]),
            one["action"],
            one["state"],
            f"{one['share']:.0%}",
            one["key"] or "",
            inert(one["reason"] or ""),
        )
        decisions.add_row(*row)
    screen.print(decisions)


def decide(url: str, key: str | None, rollout: int, action: str, body: Mapping[str, Any] | None = None) -> None:
    """Make a decision by hand, and print the state that follows.

    Raises:
        SlipstreamError: as `show`, or the rollout's state does not have this decision.
    """
    with open_client(url, key) as client:
        found = ask(client, f"/rollouts/{rollout}/{action}", roles=OPERATORS, field="state", body=body or {})
    print(f"rollout {rollout} of version {found['version']}: {found['state']}, share {found['share']:.0%}")
    for line in _asked(found):
        print(line)


def approve(url: str, key: str | None, rollout: int, action: str, *, force: bool, at: float | None) -> None:
    """Approve what another person has asked for: print what that is, and the state that follows.

    Args:
        at: when what is approved was asked for, in Unix seconds; None for what waits now.

    Raises:
        SlipstreamError: as `decide`, or something else waits, or nothing.
    """
    with open_client(url, key) as client:
        found = ask(client, f"/rollouts/{rollout}", roles=READERS, field="evidence")
    if (asked := found["asked"]) is None:
        raise SlipstreamError(f"rollout {rollout}: nothing waits for approval")
    print(_request(found, asked))
    body = {"action": action, "force": force, "at": asked["at"] if at is None else at}
    decide(url, key, rollout, "approve", body)


def _head(found: Mapping[str, Any]) -> Iterator[str]:
    units, step = found["evidence"]["units"], found["evidence"]["units_of_step"]
    yield f"rollout {found['id']} of version {found['version']}: {found['state']}, share {found['share']:.0%}"
    yield f"units: {units['control']} of control, {units['treatment']} of treatment"
    yield from _asked(found)
    missing = found["missing"]
    if missing["seconds"] is not None:
        yield (
            f"this step: {step['control']} and {step['treatment']} of {step['needed']} units; at least "
            f"{span(missing['seconds'])} and about {missing['units']} units more"
        )
    for reason in (*missing["reasons"], *filter(None, [missing["lane"]])):
        yield f"missing: {inert(reason)}"


def _asked(found: Mapping[str, Any]) -> Iterator[str]:
    if (asked := found.get("asked")) is not None:
        force = " --force" if asked["force"] else ""
        yield (
            f"{_request(found, asked)}, which another person has to approve: "
            f"slipstream rollout approve {found['id']} {asked['action']}{force} --at {asked['at']}"
        )


def _request(found: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    forced = " by force" if asked["force"] else ""
    return f"{asked['by']} asked at {moment(asked['at'])} to {asked['action']} version {found['version']}{forced}"


def _measured(one: Mapping[str, Any]) -> Iterator[str]:
    for value in (one["means"]["control"], one["means"]["treatment"], one["difference"]):
        yield "" if value is None else f"{value:.3f}"
    yield f"{one['interval'][0]:+.3f} to {one['interval'][1]:+.3f}"


def _claims(**claims: Mapping[str, Any]) -> Iterator[str]:
    """The evidence for each claim, and those that are proven."""
    words = {name: name.replace("_", " ") for name in claims}
    yield ", ".join(
        f"{words[name]} {claim['log_e']:.1f} of {claim['needed']:.1f}"
        + (f", about {claim['missing']} units more" if claim["missing"] else "")
        for name, claim in claims.items()
    )
    yield ", ".join(words[name] for name, claim in claims.items() if claim["proven"])


def read_plan(path: Path) -> dict[str, Any]:
    """The fields of a plan.

    Raises:
        SlipstreamError: it cannot be read.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise SlipstreamError(f"--plan: {path} cannot be read as YAML ({error})") from error
    if not isinstance(found, dict):
        raise SlipstreamError(f"--plan: expected a mapping in {path}, found {type(found).__name__}")
    return found
