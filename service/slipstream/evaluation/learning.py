"""The curve of learning: the rewards of each version in training, on held-out cases and by live users, side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from slipstream.store import evaluations, rollout_units, rollouts, version_groups, version_views
from slipstream.store.evaluations import Evaluation
from slipstream.store.rollouts import Rollout
from slipstream.store.version_groups import AnsweredGroup
from slipstream.store.version_rewards import mean_and_error

_GROUPS, _GROUPS_IN_ALL = 40, 2000
"""Newest groups that are looked at between a version and the next, and for all versions of a page."""

_GROUPS_OF_LENGTHS = 2
"""Groups of each version whose answers are unpacked for their tokens."""

_UNITS = 1000
"""Newest units of a rollout whose rewards are added up."""

_SHOWN = ("version", "made_at", "found_at", "served_at", "parent", "trained_on", "metrics", "aliases", "state")


async def curve(
    session: AsyncSession, limit: int, before: int | None, within: tuple[float, float]
) -> tuple[list[dict[str, Any]], int | None]:
    """Versions with what is known of their learning, the newest first, and where the next page begins.

    Args:
        before: that of the page before; None for the newest.
        within: the range of rewards.
    """
    views, after = await version_views.page(session, limit, before)
    numbers = [view["version"] for view in views]
    done = await evaluations.newest_done(session, numbers)
    live = await rollouts.newest_of(session, numbers) if numbers else {}
    groups = await _groups(session, numbers)
    return [
        {
            **{name: view[name] for name in _SHOWN},
            "training": view["rewards"],
            "held_out": [_held_out(one) for _, one in sorted(done.get(view["version"], {}).items())],
            "live": await _live(session, live.get(view["version"]), within),
            "groups": groups.get(view["version"]),
        }
        for view in views
    ], after


def _held_out(one: Evaluation) -> dict[str, Any]:
    assert one.result is not None, "it is done"
    production = one.result["production"]
    return {
        "suite": one.suite,
        "evaluation": one.id,
        **one.result["version"]["reward"],
        "production": None if production is None else production["reward"],
    }


async def _live(session: AsyncSession, rollout: Rollout | None, within: tuple[float, float]) -> dict[str, Any] | None:
    """The rewards of users' answers, by the newest rollout; None if none was scored, or its units are deleted."""
    if rollout is None:
        return None
    sums = await rollout_units.reward_sums(session, rollout.id, _UNITS)
    if True not in sums:
        return None
    arms = {treated: _scaled(mean_and_error(*some), within) for treated, some in sums.items()}
    return {"rollout": rollout.id, **arms[True], "production": arms.get(False)}


def _scaled(found: Mapping[str, Any], within: tuple[float, float]) -> dict[str, Any]:
    """Values of units are in parts of the range of rewards."""
    low, width = within[0], within[1] - within[0]
    error = found["standard_error"]
    return {
        "count": found["count"],
        "mean": low + width * found["mean"],
        "standard_error": None if error is None else width * error,
    }


async def _groups(session: AsyncSession, versions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The groups that each version answered: of the newest between each version's coming and the next one's."""
    begun = await version_groups.beginnings(session, versions)
    if not begun:
        return {}
    bounds = sorted(set(begun.values()))
    ends = [*bounds[1:], await version_groups.next_beginning(session, bounds[-1])]
    limit = min(_GROUPS, _GROUPS_IN_ALL // len(bounds))
    names: list[str] = []
    for after, end in zip(bounds, ends, strict=True):
        names += await version_groups.groups_between(session, after, end, limit)
    of_version: dict[int, list[AnsweredGroup]] = {}
    for group in await version_groups.answered(session, names, begun):
        of_version.setdefault(group.version, []).append(group)
    some = [group.group_id for groups in of_version.values() for group in groups[-_GROUPS_OF_LENGTHS:]]
    tokens = await version_groups.lengths(session, some)
    return {version: _figures(groups, tokens.get(version, ())) for version, groups in of_version.items()}


def _figures(groups: Sequence[AnsweredGroup], tokens: Sequence[int]) -> dict[str, Any]:
    several = [group for group in groups if group.runs > 1]
    seconds = [group.seconds for group in groups if group.seconds is not None]
    return {
        "count": len(groups),
        "runs": sum(group.runs for group in groups),
        "spread": fmean(group.spread for group in several) if several else None,
        "alike": sum(group.alike for group in several) / len(several) if several else None,
        "tokens": fmean(tokens) if tokens else None,
        "seconds": fmean(seconds) if seconds else None,
    }


def difference_of(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """The mean of `b` less that of `a`, with the standard error of two independent means and its 95% interval."""
    if a["mean"] is None or b["mean"] is None:
        return {"difference": None, "standard_error": None, "interval": None}
    difference = b["mean"] - a["mean"]
    if a["standard_error"] is None or b["standard_error"] is None:
        return {"difference": difference, "standard_error": None, "interval": None}
    error = math.hypot(a["standard_error"], b["standard_error"])
    return {
        "difference": difference,
        "standard_error": error,
        "interval": [difference - 1.96 * error, difference + 1.96 * error],
    }
