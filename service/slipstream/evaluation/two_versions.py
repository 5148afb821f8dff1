"""Two versions side by side: which one has the better rewards, and which tasks gained and lost most from one to the
other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.evaluation.learning import difference_of
from slipstream.evaluation.pairing import Pair
from slipstream.evaluation.verdicts import NAMED, Verdicts
from slipstream.store import evaluations, version_groups
from slipstream.store.version_groups import AnsweredGroup
from slipstream.store.version_rewards import mean_and_error
from slipstream.tenants import name_of, tenant_of

_GROUPS = 1000
"""Newest groups that are looked at for each version."""

_VERSIONS_AFTER = 2
"""Versions after one, until whose coming its groups are looked for: its runs are delivered by then, unless the Explorer
is far ahead of the Trainer."""


class _Task(NamedTuple):
    """A task, with the runs of it that a version answered and the mean of their rewards."""

    runs: int
    mean: float


async def compared(session: AsyncSession, verdicts: Verdicts, a: int, b: int, tenant: str | None) -> dict[str, Any]:
    """Compare version `b` with version `a`; a difference above 0 is in favour of `b`.

    Args:
        tenant: whose tasks are compared; None for those of all.
    """
    begun = await version_groups.beginnings(session, [a, b])
    tasks = {version: await _tasks(session, version, begun[version], tenant) for version in (a, b)}
    labels = await version_groups.labels_of(session, [*tasks[a], *tasks[b]])
    arms = {version: _sum(list(found.values())) for version, found in tasks.items()}
    both = [
        {**_named(task, labels), "a": one.mean, "b": tasks[b][task].mean}
        for task, one in tasks[a].items()
        if task in tasks[b]
    ]
    lowest = sorted(tasks[b].items(), key=lambda item: item[1].mean)[:NAMED]
    return {
        "a": a,
        "b": b,
        "training": {"a": arms[a], "b": arms[b], **difference_of(arms[a], arms[b])},
        "held_out": await _held_out(session, verdicts, a, b),
        "labels": _by_label(tasks[a], tasks[b], labels),
        "tasks": {"both": len(both), **_most(both)},
        "lowest": [{**_named(task, labels), "runs": found.runs, "mean": found.mean} for task, found in lowest],
    }


def _named(task: str, labels: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {"task_id": name_of(task), "tenant": tenant_of(task), "labels": list(labels.get(task, ()))}


async def _tasks(session: AsyncSession, version: int, begun: int, tenant: str | None) -> dict[str, _Task]:
    """The tasks whose runs a version answered."""
    end = await version_groups.next_beginning(session, begun, skip=_VERSIONS_AFTER - 1)
    names = await version_groups.groups_between(session, begun, end, _GROUPS)
    of_task: dict[str, list[AnsweredGroup]] = {}
    for group in await version_groups.answered(session, names, {version: begun}):
        if tenant in (None, tenant_of(group.task_id)):
            of_task.setdefault(group.task_id, []).append(group)
    return {
        task: _Task(runs := sum(group.runs for group in some), sum(group.mean * group.runs for group in some) / runs)
        for task, some in of_task.items()
    }


def _sum(tasks: Sequence[_Task]) -> dict[str, Any]:
    """Mean and standard error over tasks: the runs of one are alike, and count once."""
    means = [task.mean for task in tasks]
    found = mean_and_error(len(means), sum(means), sum(mean * mean for mean in means))
    return {
        "tasks": found["count"],
        "runs": sum(task.runs for task in tasks),
        "mean": found["mean"],
        "standard_error": found["standard_error"],
    }


def _by_label(
    of_a: Mapping[str, _Task], of_b: Mapping[str, _Task], labels: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The labels that tasks of both have, those that differ most first."""
    arms: tuple[dict[str, list[_Task]], ...] = ({}, {})
    for arm, tasks in zip(arms, (of_a, of_b), strict=True):
        for task, found in tasks.items():
            for label in labels.get(task, ()):
                arm.setdefault(label, []).append(found)
    rows = []
    for label in arms[0].keys() & arms[1].keys():
        a, b = (_sum(arm[label]) for arm in arms)
        rows.append({"label": label, "a": a, "b": b, **difference_of(a, b)})
    return sorted(rows, key=lambda row: (-abs(row["difference"]), row["label"]))[: 2 * NAMED]


async def _held_out(session: AsyncSession, verdicts: Verdicts, a: int, b: int) -> list[dict[str, Any]]:
    """The newest evaluations of both on each suite, on the cases that both were asked."""
    done = await evaluations.newest_done(session, {a, b})
    found = []
    for suite in sorted(done.get(a, {}).keys() & done.get(b, {}).keys()):
        one, other = done[b][suite], done[a][suite]
        both = await verdicts.between(session, one, other)
        found.append(
            {
                "suite": suite,
                "evaluations": {"a": other.id, "b": one.id},
                "a": both.other,
                "b": both.one,
                "reason": both.reason,
                **both.judgement,
                "gained": [_case(pair) for pair in both.gained],
                "lost": [_case(pair) for pair in both.lost],
            }
        )
    return found


def _case(pair: Pair) -> dict[str, Any]:
    return {"case": pair.name, "a": pair.other, "b": pair.one, "difference": pair.one - pair.other}


def _most(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows whose `b` is above their `a` most, and below it most."""
    differing = [{**row, "difference": row["b"] - row["a"]} for row in rows]
    differing.sort(key=lambda row: row["difference"])
    return {
        "gained": [row for row in reversed(differing[-NAMED:]) if row["difference"] > 0],
        "lost": [row for row in differing[:NAMED] if row["difference"] < 0],
    }
