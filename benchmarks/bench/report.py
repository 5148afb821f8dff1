"""The report: Markdown tables of what was measured."""

from __future__ import annotations

import datetime
import platform
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata

from bench import scaling
from bench.machine import describe
from bench.request import Api
from bench.results import Results
from bench.rounds import COST_RATES, LONG, LONG_RATE, RATES, Plan
from bench.targets import PEERS, ROOT, Target

_NONE = "–"


def report(results: Results, targets: Sequence[Target], plan: Plan, arguments: str) -> str:
    """Everything that was measured, with the machine, the versions and the remarks."""
    parts = [
        _heading(results, plan, arguments),
        "### Requests",
        _requests(results, targets),
        _stored(results, targets),
        "### At leisure",
        _at_leisure(results, targets),
        "### Streams",
        _streams(results, targets, plan),
        _apis(results, targets),
    ]
    if any(target.capture is not None for target in targets):
        parts += ["### Workers", _workers(results)]
    parts += ["### Remarks", _remarks(results, targets)]
    return "\n\n".join(part for part in parts if part)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = [" | ".join(header), "|".join(["---", *["---:"] * (len(header) - 1)])]
    return "\n".join(
        f"| {line} |" if index != 1 else f"|{line}|" for index, line in enumerate([*lines, *map(" | ".join, rows)])
    )


def number(value: float | None, scale: float = 1.0, digits: int = 0) -> str:
    """`value` times `scale`, or a dash."""
    return _NONE if value is None else f"{value * scale:,.{digits}f}"


def _pair(one: float | None, other: float | None, scale: float) -> str:
    return _NONE if one is None else f"{number(one, scale)} / {number(other, scale)}"


def _percent(value: float | None) -> str:
    """Rounded down: what lost one call in ten thousand did not store 100%."""
    return _NONE if value is None else "100%" if value >= 1 else f"{int(value * 1000) / 10:.1f}%"


def _measured(results: Results, targets: Sequence[Target]) -> list[Target]:
    return [target for target in targets if target.key not in results.unavailable]


def _heading(results: Results, plan: Plan, arguments: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    worst = max(results.busy, default=0.0)
    return "\n".join(
        [
            f"- {now:%Y-%m-%d %H:%M} UTC, `make bench{f' ARGS={arguments!r}' if arguments else ''}`",
            f"- machine: {describe()}",
            f"- versions: {', '.join(_versions())}",
            f"- {results.rounds} rounds of {plan.seconds:g} s, interleaved; medians of the rounds",
            f"- busy with other things: at most {worst:.2f} cores in a measurement that counts; "
            f"{results.repeated} repeated for it",
        ]
    )


def _versions() -> list[str]:
    commit = _said("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD")
    found = [f"Slipstream {metadata.version('slipstream-sidecar')} ({commit})"]
    found.append(f"Python {platform.python_version()}")
    found += [f"{name} {metadata.version(name)}" for name in ("uvloop", "httptools")]
    found.append(_said("nginx", "-v").replace("nginx version: ", "").replace("/", " "))
    found.append(" ".join(_said("wrk", "-v").split()[:2]))
    packages = {
        ROOT / ".trinity-venv": "trinity-rft",
        PEERS / "mlflow": "mlflow",
        PEERS / "agent-lightning": "agentlightning",
        PEERS / "litellm": "litellm",
    }
    for environment, package in packages.items():
        for folder in environment.glob("lib/python*/site-packages"):
            for distribution in metadata.distributions(name=package, path=[str(folder)]):
                found.append(f"{package} {distribution.version}")
    return found


def _said(*command: str) -> str:
    """The first line that the command says; a report may be written again where the tools are not."""
    if shutil.which(command[0]) is None:
        return f"{command[0]} not found"
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return (ended.stdout or ended.stderr).strip().split("\n")[0]


def _requests(results: Results, targets: Sequence[Target]) -> str:
    rows = []
    for target in _measured(results, targets):
        key = target.key
        rates = " / ".join(number(results.median(key, f"rate@{connections}")) for connections in (1, 32, 256))
        spread = results.spread(key, "rate@32")
        row = [target.name, rates, _NONE if spread is None else f"±{spread * 100:.0f}%"]
        for base in ("direct", "nginx"):
            ratios = [number(results.ratio(key, f"rate@{connections}", base), 1, 3) for connections in (32, 256)]
            row.append(_NONE if _NONE in ratios else " / ".join(ratios))
        if target.start is None:
            row += [_NONE] * (3 + len(RATES))
        else:
            row.append(number(results.median(key, "cpu@32"), 1e6, 1))
            row.append(number(results.added(key, "p50@1"), 1e6))
            row += [
                _pair(results.added(key, f"p50@{rate}/s"), results.added(key, f"p99@{rate}/s"), 1e6) for rate in RATES
            ]
            row.append(_pair(results.highest(key, "pss"), results.highest(key, "rss"), 1e-6))
        rows.append(row)
    header = ["", "req/s at 1 / 32 / 256 connections", "spread at 32", "of direct at 32 / 256", "of nginx at 32 / 256"]
    header += ["CPU per request at 32, µs", "added p50 at 1, µs"]
    header += [f"added p50 / p99 at {rate:,} req/s, µs" for rate in RATES]
    return table([*header, "memory PSS / RSS, MB"], rows)


def _stored(results: Results, targets: Sequence[Target]) -> str:
    rows = []
    for target in _measured(results, targets):
        if target.capture is None or not results.values(target.key, "cpu@32"):
            continue
        key = target.key
        stored = [_percent(results.median(key, f"stored@{load}")) for load in ("1", "32", "256", "100/s", "1000/s")]
        cpu, training = results.median(key, "cpu@32"), results.median(key, "training@32")
        split = (
            [_NONE, _NONE] if not cpu or not training else [number(cpu - training, 1e6, 1), number(training, 1e6, 1)]
        )
        rows.append([target.name, " / ".join(stored), *split])
    header = ["of the calls that capture wanted", "stored, at 1 / 32 / 256 connections / 100 / 1,000 req/s"]
    header += ["CPU per request at 32, proxy, µs", "CPU per request at 32, training side, µs"]
    return table(header, rows) if rows else ""


def _at_leisure(results: Results, targets: Sequence[Target]) -> str:
    rows = []
    for target in _measured(results, targets):
        if target.compared:
            key = target.key
            costs = [number(results.median(key, f"cpu@{rate}/s"), 1e3, 2) for rate in COST_RATES]
            rows.append([target.name, number(results.median(key, "idle"), 100, 2), " / ".join(costs)])
            rows[-1].append(number(results.median(key, "long"), 1e3, 2))
    rates = " / ".join(f"{rate:,}" for rate in COST_RATES)
    header = ["", "idle, % of a core", f"CPU per request at {rates} req/s, ms"]
    header.append(f"with a history of {LONG // 1000} KB, of one conversation, at {LONG_RATE} req/s, ms")
    return table(header, rows) if rows else ""


def _streams(results: Results, targets: Sequence[Target], plan: Plan) -> str:
    rows = []
    for target in _measured(results, targets):
        key = target.key
        row = [target.name, number(results.median(key, "first"), 1e6)]
        if target.start is None:
            row += [_NONE] * 3
        else:
            row.append(number(results.added(key, "first"), 1e6))
            row.append(number(results.median(key, "event"), 1e6, 1))
            row.append(_pair(results.median(key, "slow_pss"), results.median(key, "slow_rss"), 1e-6))
        rows.append(row)
    header = ["", "first event, p50, µs", "added, µs", "CPU per 1,000 events, ms"]
    header += [f"memory with {plan.slow_streams:,} slow streams, PSS / RSS, MB"]
    said = (
        f"{plan.streams} streams at once, each of {plan.events} events 10 ms apart; and {plan.slow_streams:,} at once, "
        f"each of {plan.slow_events} events 1 s apart."
    )
    return f"{said}\n\n{table(header, rows)}"


def _apis(results: Results, targets: Sequence[Target]) -> str:
    """The cost of an event by API."""
    names = {
        Api.CHAT: "chat completions",
        Api.LOGPROBS: "with log probabilities",
        Api.RESPONSES: "responses",
        Api.MESSAGES: "messages",
    }
    rows = []
    for target in _measured(results, targets):
        if target.compared:
            costs = [results.median(target.key, "event" if api is Api.CHAT else f"event of {api}") for api in names]
            rows.append([target.name, *(number(cost, 1e6, 1) for cost in costs)])
    return table(["CPU per 1,000 events, ms", *names.values()], rows) if rows else ""


def _workers(results: Results) -> str:
    if "workers" in results.unavailable:
        return f"Not measured: {results.unavailable['workers']}"
    rows = []
    for target in scaling.VARIANTS:
        base = target.key.replace("workers-2", "workers-1")
        measure = f"{{}}@{scaling.CONNECTIONS}".format
        cpu, training = results.median(target.key, measure("cpu")), results.median(target.key, measure("training"))
        row = [target.name, number(results.median(target.key, measure("rate")))]
        row.append(number(results.ratio(target.key, measure("rate"), base), 1, 2))
        row += [number(cpu, 1e6, 1), number(training or None, 1e6, 1)]
        rows.append([*row, _percent(results.median(target.key, measure("stored")))])
    said = (
        f"{scaling.CONNECTIONS} connections; each worker has a CPU quota of {scaling.WORKER:.0%} of a core, "
        f"the training side one of {scaling.TRAINING:.0%}."
    )
    header = ["", "req/s", "of one worker", "CPU per request, µs", "of it training side, µs", "stored"]
    return f"{said}\n\n{table(header, rows)}"


def _remarks(results: Results, targets: Sequence[Target]) -> str:
    lines = [
        f"- {t.name} was not measured: {results.unavailable[t.key]}" for t in targets if t.key in results.unavailable
    ]
    lines += [f"- {note}" for note in results.notes]
    return "\n".join(lines or ["- none"])
