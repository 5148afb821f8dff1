"""Production's answer and the runs of the policy, beside each other where there is room: rewards as bars, and why a
run failed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slipstream.terminal.conversation import said
from slipstream.terminal.cut import Cut
from slipstream.terminal.inert import inert

_NARROWEST = 44
"""Columns that an answer needs; with less, answers are below each other."""

_BAR = 10
"""Columns of the bar of a reward."""

_CALL = re.compile(r"\.(\d+)(?:~\d+)?\Z")
"""The end of the id of a group of shadow calls: the position of its call, and which try it is."""

View = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Answer:
    """One column: its title, figures, and the answer."""

    title: Text
    body: RenderableType


def groups(task: View, asked: str | None, cut: Cut, width: int) -> Iterable[RenderableType]:
    """The groups of a task: its runs, what became of them, and production's answer to the same call.

    Args:
        task: the answer of GET /tasks/{task_id}.
        asked: the msg_id of an answer that is to be marked, or None.
        width: columns of the terminal.
    """
    shown = list(task["groups"])
    if not shown:
        yield Text()
        yield Text("It has no runs of the policy.", style="dim")
    if cut.groups is not None and len(shown) > cut.groups:
        yield Text()
        yield Text(f"… {len(shown) - cut.groups:,} groups of earlier calls; --full shows them", style="dim")
        shown = shown[-cut.groups :]
    for group in shown:
        calls = _calls(task["calls"], group)
        answers = [_of_production(call, asked, cut) for call in calls]
        scale = _Scale.of(group["runs"])
        answers += [_of_policy(run, scale, asked, cut) for run in group["runs"]]
        yield Text()
        yield _heading(group, cut)
        yield from _beside(answers, width)


def _calls(calls: Sequence[View], group: View) -> Sequence[View]:
    """The call that a group repeats; the last one where it repeats the whole task."""
    if group["kind"] != "shadow_call":
        return calls[-1:]
    match = _CALL.search(group["group_id"][-40:])
    return [call for call in calls if match and call["position"] == int(match[1])]


def _heading(group: View, cut: Cut) -> Text:
    delivered = "" if group["commit"] is None else f" in commit {group['commit']}"
    kind = {"shadow_call": "runs of one call", "agent_replay": "runs of the whole task"}.get(
        group["kind"], group["kind"]
    )
    return Text.assemble(
        (inert(group["group_id"], cut.line), "bold"), f"  {inert(kind)}, {inert(group['state'])}{delivered}"
    )


def _beside(answers: Sequence[_Answer], width: int) -> Iterable[RenderableType]:
    lines = math.ceil(len(answers) / max(1, width // _NARROWEST))
    together = math.ceil(len(answers) / max(1, lines))  # as many in each line
    for first in range(0, len(answers), together or 1):
        some = answers[first : first + together]
        table = Table(box=box.SQUARE, width=width * len(some) // together)
        for answer in some:
            table.add_column(answer.title, ratio=1, overflow="fold")
        table.add_row(*(answer.body for answer in some))
        yield table


def _of_production(call: View, asked: str | None, cut: Cut) -> _Answer:
    by = call["answered_by"]
    lines: list[RenderableType] = [*_ids([call["msg_id"]], cut)]
    took = "" if call["latency"] is None else f"{call['latency']:.2f} s, "
    lines.append(Text(f"call {call['position']}, {took}{inert(call['dialect'], cut.line)}"))
    if call["problem"]:
        lines.append(Text(f"the policy cannot be asked this: {inert(call['problem'], cut.line)}", style="yellow"))
    if "answer" in call:
        lines += _answers([call["answer"]], cut)
    return _Answer(_title(inert(by, cut.line), [call["msg_id"]], asked), Group(*lines))


def _of_policy(run: View, scale: _Scale, asked: str | None, cut: Cut) -> _Answer:
    ids = run.get("msg_ids") or [run.get("msg_id")]
    version = "" if run["policy_version"] is None else f", version {run['policy_version']}"
    lines: list[RenderableType] = [*_ids(ids, cut), Text(f"{inert(run['state'])}{version}")]
    if run.get("reason"):
        lines.append(Text(inert(run["reason"], cut.text), style="red"))
    if run["reward"] is not None:
        lines.append(scale.bars(run["reward"], run.get("breakdown") or {}, cut))
    lines += _answers(run.get("answers") or ([run["answer"]] if run.get("answer") else []), cut)
    return _Answer(_title(f"run {run['run_id']}", ids, asked), Group(*lines))


def _title(name: str, ids: Sequence[str | None], asked: str | None) -> Text:
    return Text.assemble((name, "bold"), (" ← the answer asked for", "yellow") if asked in ids and asked else "")


def _ids(ids: Sequence[str | None], cut: Cut) -> Iterable[RenderableType]:
    return [Text(inert(msg_id, cut.line), style="dim") for msg_id in ids if msg_id is not None]


def _answers(messages: Sequence[Any], cut: Cut) -> Iterable[RenderableType]:
    for message in messages:
        yield Text()
        yield (
            Text("not shown: there is none, or too much of it", style="dim") if message is None else said(message, cut)
        )


@dataclass(frozen=True, slots=True)
class _Scale:
    """The range of the rewards of a group and of their parts, so that its bars can be compared."""

    low: float
    high: float

    @classmethod
    def of(cls, runs: Sequence[View]) -> _Scale:
        """From 0 to 1, or as far as the group's values go."""
        found = [run["reward"] for run in runs]
        found += [value for run in runs for value in (run.get("breakdown") or {}).values()]
        known = [value for value in found if value is not None]
        return cls(min(0.0, *known, 0.0), max(1.0, *known, 1.0))

    def bars(self, reward: float, breakdown: Mapping[str, float | None], cut: Cut) -> RenderableType:
        """The reward, and below it its parts."""
        grid = Table.grid(padding=(0, 1))
        grid.add_column(overflow="fold")
        grid.add_column(justify="right")
        grid.add_column(width=_BAR)
        grid.add_row(Text("reward", style="bold"), Text(f"{reward:.3f}", style="bold"), self._bar(reward, "green"))
        for name, value in breakdown.items():
            shown = "none" if value is None else f"{value:.3f}"
            bar = Text() if value is None else self._bar(value, "blue")
            grid.add_row(Text(f"  {inert(name, cut.line)}"), Text(shown), bar)
        return grid

    def _bar(self, value: float, color: str) -> Bar:
        """A bar between 0 and the value, to the left where that is below 0."""
        begin, end = min(0.0, value) - self.low, max(0.0, value) - self.low
        return Bar(self.high - self.low, begin, end, width=_BAR, color=color)
