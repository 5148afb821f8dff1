"""The status of a sidecar as a table: what is wrong first, then what is selected, run, rewarded and committed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.terminal.inert import inert
from slipstream.terminal.spans import span

Status = Mapping[str, Any]

_LONGEST = 400
"""Characters of a reason; GET /status has it whole."""


def table(status: Status, url: str) -> RenderableType:
    """
    Args:
        status: the body of GET /status. Parts that a sidecar of another release lacks are left out.
    """
    return Group(*_problems(status), _overview(status, url), *_rewards(status), *_failures(status))


def _problems(status: Status) -> Iterable[RenderableType]:
    problems = status.get("problems") or []
    if not problems:
        yield Text("no problems", style="green")
    for problem in problems:
        style = "bold red" if problem["severity"] == "error" else "yellow"
        yield Text.assemble(
            (f"{problem['severity']}: {problem['code']}", style), f" at {inert(problem['where'], _LONGEST)}"
        )
        for name in ("found", "why", "fix"):
            yield Text(f"  {name}: {inert(problem[name], _LONGEST)}")
    yield Text()


def _overview(status: Status, url: str) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for name, value in rows(status, time.time()):
        grid.add_row(Text(name, style="bold"), Text(inert(value, _LONGEST)))
    return Group(Text(f"slipstream {status['slipstream']} at {url}", style="bold"), grid)


def rows(status: Status, now: float | None) -> Iterable[tuple[str, str]]:
    """Name and value of what is told in one line each.

    Args:
        now: Unix seconds, for ages and waits; without it they are left out, so that rows differ only where something
            has happened.
    """
    explorer, policy = status.get("explorer", {}), status.get("policy", {})
    up = {True: "up", False: f"away: {explorer.get('error')}", None: "not asked yet"}[explorer.get("up")]
    breaker = explorer.get("breaker", "closed")
    yield "Explorer", up if breaker == "closed" else f"{up}; circuit breaker {breaker}"
    version = "not known" if policy.get("version") is None else f"{policy['version']}"
    back = f", rolled back from {policy['rolled_back_from']}" if policy.get("rolled_back_from") is not None else ""
    yield "policy version", f"{version}{back}{_ago(policy.get('changed_at'), now)}"
    if traffic := status.get("traffic"):
        yield "last minute", _traffic(traffic)
    selection = status.get("selection", {})
    yield "selected", _counts(selection.get("selected"))
    yield "not selected", _counts(selection.get("not_selected"))
    for name in ("tasks", "groups", "runs", "feedback", "commits"):
        yield name, _counts(status.get(name))
    yield "next commit", _next(status.get("next_commit", {}), now)
    if last := status.get("last_commit"):
        reason = f": {last['reason']}" if last.get("reason") else ""
        found = f"{last['state']}{reason}, {last['experiences']} experiences in {last['groups']} groups"
        yield "last commit", f"{found}{_ago(last.get('ended_at') or last.get('started_at'), now)}"
    if today := status.get("today"):
        cost = "" if today["cost"] is None else f", {today['cost']:.2f} {today['currency'] or ''}".rstrip()
        yield "tokens today", f"{today['input']:,} in, {today['output']:,} out{cost}"
    yield "delivered", f"{status.get('experiences_delivered')} experiences in all"


def _traffic(traffic: Mapping[str, Any]) -> str:
    found = f"{traffic['requests']:,} requests, {traffic['failed']:,} failed, {traffic['refused']:,} refused"
    p50, p99 = traffic["added_seconds"]["p50"], traffic["added_seconds"]["p99"]
    added = "" if p50 is None else f"; {p50 * 1000:.2g} ms added, {p99 * 1000:.2g} ms at p99"
    return f"{found}, {traffic['captured']:,} captured{added}"


def _next(commit: Mapping[str, Any], now: float | None) -> str:
    seconds = commit.get("in_seconds")
    when = "" if seconds is None or now is None else f" in {span(seconds)}"
    return f"{commit.get('experiences_ready')} experiences ready{when}; at least {commit.get('min_experiences')}"


def _rewards(status: Status) -> Iterable[RenderableType]:
    if not (rewards := status.get("rewards")):
        return
    found = Table(title="rewards of the newest runs", title_justify="left")
    for name in ("version", "runs", "mean", "min", "max"):
        found.add_column(name, justify="right")
    for row in rewards:
        numbers = (f"{row[name]:.3f}" for name in ("mean", "min", "max"))
        found.add_row("unknown" if row["version"] is None else str(row["version"]), str(row["runs"]), *numbers)
    yield Text()
    yield found


def _failures(status: Status) -> Iterable[RenderableType]:
    if not (failures := status.get("failed_runs")):
        return
    yield Text()
    yield Text("runs that failed last", style="bold")
    for run in failures:
        yield Text(inert(f"  {run['group_id']} run {run['run_id']}: {run['reason']}", _LONGEST))


def _counts(counts: Mapping[str, int] | None) -> str:
    """The largest first."""
    ordered = sorted((counts or {}).items(), key=lambda entry: -entry[1])
    return ", ".join(f"{name} {count}" for name, count in ordered) or "none"


def _ago(at: float | None, now: float | None) -> str:
    return "" if at is None or now is None else f", {span(max(0.0, now - at))} ago"
