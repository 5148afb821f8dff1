"""What the soak leaves: figures in a file, a picture, and tables; and the judgement on each figure."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # no display is needed
from bench.machine import describe
from bench.report import table
from matplotlib import pyplot as plt

from soak.measured import Look, Measured
from soak.slope import Slope, slope
from soak.watched import Held

_MIB = 2.0**20
_SPAN = 600.0
"""Seconds that slopes are told for: ten minutes."""
_BLOCKS = 10
"""Blocks that the judged part is cut into for the intervals: of two minutes, where it is twenty."""
_NAMES = {"proxy-0": "proxy", "training": "training side", "parent": "parent"}
_COLORS = {"proxy-0": "tab:blue", "training": "tab:orange", "parent": "tab:green"}


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that must not rise: of a process, in `unit`s, by at most `bound` of them in ten minutes."""

    words: str
    unit: str
    bound: float
    of: Callable[[Held], float | None]


FIGURES = (
    Figure("RSS", "MiB", 1.0, lambda held: held.rss / _MIB),
    Figure("PSS", "MiB", 1.0, lambda held: held.pss / _MIB),
    Figure("open descriptors", "", 5.0, lambda held: float(held.descriptors)),
    Figure("threads", "", 0.5, lambda held: float(held.threads)),
    Figure("tasks", "", 1.0, lambda held: held.tasks),
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A figure of a process: medians of the first and the last tenth of the judged part, the slope in ten minutes."""

    process: str
    figure: Figure
    first: float
    last: float
    slope: Slope

    @property
    def flat(self) -> bool:
        return self.slope.flat(self.figure.bound)


def judge(measured: Measured) -> list[Judged]:
    """Every figure of every process."""
    looks = measured.judged
    block = (measured.plan.seconds - measured.plan.warm) / _BLOCKS
    found = []
    for process in _NAMES:
        for figure in FIGURES:
            times, values = _series(looks, process, figure)
            if len(values) < 8:
                continue
            tenth = max(1, len(values) // 10)
            each = slope(times, values, block=block)
            per_span = Slope(each.value * _SPAN, each.low * _SPAN, each.high * _SPAN)
            found.append(Judged(process, figure, _median(values[:tenth]), _median(values[-tenth:]), per_span))
    return found


def unexpected(measured: Measured) -> dict[str, int]:
    """What came that should not have, and how often."""
    return {name: count for name, count in measured.counts.items() if name.startswith("unexpected")}


def report(measured: Measured, judged: Iterable[Judged], picture: str) -> str:
    """The tables and the picture, in Markdown."""
    plan, when = measured.plan, datetime.datetime.fromtimestamp(measured.began, datetime.UTC)
    wrong = unexpected(measured)
    head = [
        f"- {when:%Y-%m-%d %H:%M} UTC, `make soak`: {plan.seconds / 60:.0f} minutes, seed {plan.seed}",
        f"- machine: {describe()}",
        f"- capacity: {measured.capacity:,.0f} chats a second answered and stored; under load {measured.rate:,.0f}, "
        f"and {plan.streams:,} streams open",
        f"- judged: the last {(plan.seconds - plan.warm) / 60:.0f} minutes",
        "- unexpected answers: " + ("none" if not wrong else ", ".join(f"{n} ({c})" for n, c in wrong.items())),
    ]
    return "\n\n".join(["\n".join(head), picture, _slopes(judged), _without_load(measured), _went_on(measured)])


def _slopes(judged: Iterable[Judged]) -> str:
    rows = []
    for each in judged:
        digits, unit = (1, " " + each.figure.unit) if each.figure.unit else (0, "")
        values = [f"{value:,.{digits}f}{unit}" for value in (each.first, each.last)]
        low, middle, high = (f"{value:+.2f}" for value in (each.slope.low, each.slope.value, each.slope.high))
        what = f"{_NAMES[each.process]}: {each.figure.words}"
        rows.append([what, *values, f"{middle} ({low} to {high})", f"{each.figure.bound:g}", _yes(each.flat)])
    return table(["figure", "at first", "at last", "slope in 10 minutes (95%)", "too little to matter", "flat"], rows)


def _without_load(measured: Measured) -> str:
    rows = []
    for process, name in _NAMES.items():
        before, after = measured.before.get(process), measured.after.get(process)
        if before is not None and after is not None:
            rows.append(
                [
                    name,
                    f"{before.descriptors} / {after.descriptors}",
                    f"{before.threads} / {after.threads}",
                    "–" if before.tasks is None or after.tasks is None else f"{before.tasks:.0f} / {after.tasks:.0f}",
                    f"{before.rss / _MIB:.0f} / {after.rss / _MIB:.0f}",
                ]
            )
    return table(["without load, before / after", "descriptors", "threads", "tasks", "RSS, MiB"], rows)


def _went_on(measured: Measured) -> str:
    counts, taken = measured.counts, [second for second in measured.seconds if second.p99 is not None]
    rows = [[name, f"{count:,}"] for name, count in sorted(counts.items()) if not name.startswith("unexpected")]
    rows += [[name, f"{count:,}"] for name, count in sorted(measured.faults.items())]
    metrics = {
        "calls stored": "slipstream_calls_captured_total",
        "calls dropped, counted": "slipstream_dropped_total",
        "runs that reached a state": "slipstream_runs_total",
        "commits": "slipstream_commits_total",
        "experiences delivered": "slipstream_experiences_delivered_total",
        "the Explorer's restarts, seen": "slipstream_explorer_restarts_total",
    }
    rows += [[name, f"{measured.total(metric):,.0f}"] for name, metric in metrics.items()]
    for share in ("p50", "p99"):
        values = sorted(getattr(second, share) * 1000 for second in taken)
        if values:
            middle, most = values[len(values) // 2], values[-1]
            rows.append([f"{share} of a second's chats: median / highest, ms", f"{middle:.1f} / {most:.0f}"])
    return table(["what went on", "count"], rows)


def draw(measured: Measured, path: Path) -> None:
    """The picture: memory, descriptors and tasks, the store, the load."""
    figure, axes = plt.subplots(4, 1, figsize=(9.5, 10.5), sharex=True, layout="constrained")
    memory, handles, store, load = axes
    minutes = _minutes(measured)
    for process, name in _NAMES.items():
        color = _COLORS[process]
        for each, style, word in ((FIGURES[0], "-", "RSS"), (FIGURES[1], ":", "PSS")):
            times, values = _series(measured.looks, process, each)
            memory.plot(minutes(times), values, style, color=color, label=f"{name}, {word}")
        times, values = _series(measured.looks, process, FIGURES[4])
        handles.plot(minutes(times), values, ":", color=color, label=f"{name}, tasks" if values else None)
        times, values = _series(measured.looks, process, FIGURES[2])
        handles.plot(minutes(times), values, color=color, label=f"{name}, descriptors")
    handles.plot(
        minutes([second.at for second in measured.seconds]),
        [second.streams for second in measured.seconds],
        color="tab:gray",
        linewidth=0.8,
        label="streams open",
    )
    store.plot(minutes([look.at for look in measured.looks]), [look.store / _MIB for look in measured.looks], "-")
    answered = [second for second in measured.seconds if second.p99 is not None]
    load.plot(
        minutes([s.at for s in answered]), [(s.p99 or 0) * 1000 for s in answered], linewidth=0.6, label="p99, ms"
    )
    load.plot(
        minutes([s.at for s in answered]), [(s.p50 or 0) * 1000 for s in answered], linewidth=0.6, label="p50, ms"
    )
    load.set_yscale("log")
    rate = load.twinx()
    rate.plot(
        minutes([s.at for s in measured.seconds]),
        [s.counts.get("chats", 0) for s in measured.seconds],
        color="tab:gray",
        linewidth=0.6,
    )
    rate.set(ylabel="chats a second (grey)", ylim=(0, 2 * measured.rate))
    highest = max(held.rss for look in measured.looks for held in look.held.values())
    memory.set(ylabel="MiB", ylim=(0, 1.4 * highest / _MIB), title="Memory by process")
    handles.set(ylabel="count", title="Descriptors, tasks and streams")
    handles.set_yscale("symlog", linthresh=10)
    handles.set_ylim(0, 1e6)  # the legend is above
    store.set(ylabel="MiB", ylim=(0, None), title="The store, its log included")
    load.set(ylabel="ms", title="Time that chats took", xlabel="minutes under load")
    for place in axes:
        place.grid(alpha=0.3)
        place.axvspan(measured.plan.warm / 60, measured.plan.seconds / 60, color="tab:green", alpha=0.06)
        for at in minutes(measured.killed):
            place.axvline(at, color="tab:red", linewidth=0.8, linestyle="--")
    for place in (memory, handles, load):
        place.legend(fontsize=8, ncols=3, loc="upper left")
    figure.suptitle(
        f"{measured.plan.seconds / 60:.0f} minutes at {measured.plan.share:.0%} of capacity "
        "(green: judged; red: training side killed)"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def rows(measured: Measured) -> str:
    """Every look, as CSV: a line for each process."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["second", "process", "rss", "pss", "descriptors", "threads", "tasks", "cpu", "store"])
    for look in measured.looks:
        for name, held in look.held.items():
            figures = (held.rss, held.pss, held.descriptors, held.threads, held.tasks, round(held.cpu, 2))
            lines.writerow([round(look.at - measured.began, 1), name, *figures, look.store])
    return out.getvalue()


def keep(measured: Measured, path: Path) -> None:
    """Write the figures of every look, packed."""
    path.write_bytes(gzip.compress(rows(measured).encode(), mtime=0))


def _series(looks: Iterable[Look], process: str, figure: Figure) -> tuple[list[float], list[float]]:
    found = [(look.at, figure.of(look.held[process])) for look in looks if process in look.held]
    known = [(at, value) for at, value in found if value is not None]
    return [at for at, _ in known], [value for _, value in known]


def _minutes(measured: Measured) -> Callable[[Iterable[float]], list[float]]:
    return lambda times: [(at - measured.began) / 60 for at in times]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _yes(flat: bool) -> str:
    return "yes" if flat else "**no**"
