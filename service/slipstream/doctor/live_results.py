"""Live problems of what selection, runs and rewards come to: tasks that are not run, runs without a reward, groups that
teach nothing, rewards that nobody takes."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.algorithms import COMPARING
from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.moment import Moment
from slipstream.terminal.spans import span

_ENOUGH_TASKS, _ENOUGH_RUNS, _ENOUGH_GROUPS = 5, 3, 5
"""Numbers of fruitless tasks, runs and groups from which on it is no accident."""
_BY_DESIGN = ("undecided", "not_sampled")
"""Reasons not to select a task that need no attention: a low rate of sampling takes none of the first hundreds."""
_INTERVALS = 3
"""Times the longest time between two commits after which one should have come."""
_LEAST_WAIT = 60.0
"""Seconds that a commit may be late in any case."""

NOTHING_SELECTED = Problem(
    "live.nothing_selected",
    "warning",
    why="Tasks come, and none is trained on.",
    fix="Look up the reason in docs/selection.md, and change `selection`.",
)
RUNS_FAIL = Problem(
    "live.runs_fail",
    "error",
    why="Every run of the policy fails before it has an answer: nothing is scored, and nothing is ever trained on.",
    fix="The reason is the Explorer's or the replayed agent's own: see its log, and `failed_runs` of GET /status.",
)
NOTHING_SCORED = Problem(
    "live.nothing_scored",
    "warning",
    why="The policy answers, and no run gets a reward: nothing is ever committed.",
    fix="Look up the reason in docs/rewards.md, and change `rewards.calculators`.",
)
SCORING_FAILS = Problem(
    "live.scoring_fails",
    "warning",
    why="A calculator raises, or has no reward to give, for a part of the runs: their groups are smaller, or dropped, "
    "and what it cannot judge is never learned.",
    fix="Mend the calculator for such answers: it should give 0 to a wrong answer instead of raising.",
)
GROUPS_OF_ONE = Problem(
    "live.groups_of_one",
    "warning",
    why="Group algorithms (grpo and the like) compare the runs of a group. A group with one reward has nothing to be "
    "compared with: it is dropped, or its bare reward passes for its advantage, so that bad answers are learned too.",
    fix="`runs.repeat_time: 8`; if other runs of a group fail, see why. With an algorithm that takes each run by "
    "itself, name it in `explorer.algorithm_type`, such as ppo.",
)
REWARDS_EQUAL = Problem(
    "live.rewards_equal",
    "warning",
    why="Where all runs of a group have the same reward none is better than another: the advantage is 0, and nothing "
    "is learned.",
    fix="A reward with more steps between wrong and right, tasks that are neither too hard nor too easy, a higher "
    "temperature, or a larger `runs.repeat_time`.",
)
NOT_COMMITTED = Problem(
    "live.not_committed",
    "error",
    why="Scored runs wait, and no commit has succeeded for several intervals: the Trainer gets nothing.",
    fix="See `last_commit` of GET /status and the Explorer's log; `POST /commit` tries at once.",
)

PROBLEMS = (
    NOTHING_SELECTED, RUNS_FAIL, NOTHING_SCORED, SCORING_FAILS, GROUPS_OF_ONE, REWARDS_EQUAL, NOT_COMMITTED,
)  # fmt: skip


def selected(moment: Moment) -> Iterator[Finding]:
    passed_over = moment.health.passed_over
    reasons = {reason: count for reason, count in passed_over.items() if reason not in _BY_DESIGN}
    if sum(reasons.values()) >= _ENOUGH_TASKS:
        commonest = max(reasons, key=lambda reason: reasons[reason])
        found = f"none of {sum(reasons.values())} tasks; the commonest reason is {commonest} ({reasons[commonest]})"
        yield NOTHING_SELECTED.at("selection", found)


def runs(moment: Moment) -> Iterator[Finding]:
    seen = moment.health.outcomes
    if not seen.failed + seen.unscored:
        return
    if seen.failed == seen.runs >= _ENOUGH_RUNS:
        yield RUNS_FAIL.at("the Explorer", f"all of the newest {seen.runs} runs; the newest because: {seen.failure}")
    elif seen.unscored and not seen.groups and seen.failed + seen.unscored >= _ENOUGH_RUNS:
        found = f"none of the newest {seen.runs} runs; the newest failed because: {seen.scoring_failure}"
        yield NOTHING_SCORED.at("rewards.calculators", found)
    elif seen.unscored and seen.groups:
        found = f"{seen.unscored} of the newest {seen.runs} runs; the newest because: {seen.scoring_failure}"
        yield SCORING_FAILS.at("rewards.calculators", found)


def groups(moment: Moment) -> Iterator[Finding]:
    seen, explorer = moment.health.outcomes, moment.settings.explorer
    algorithm = explorer.algorithm_type or "grpo"
    if algorithm not in COMPARING:
        return
    told = algorithm if explorer.algorithm_type else "grpo is assumed (explorer.algorithm_type)"
    if seen.single >= _ENOUGH_RUNS and 2 * seen.single > seen.groups:
        found = f"{seen.single} of the newest {seen.groups} groups have one reward; runs.repeat_time is "
        yield GROUPS_OF_ONE.at("runs.repeat_time", f"{found}{moment.settings.runs.repeat_time}; the algorithm: {told}")
    elif seen.equal == seen.groups - seen.single and seen.equal >= _ENOUGH_GROUPS:
        found = f"all rewards are equal in each of the newest {seen.equal} groups; the algorithm: {told}"
        yield REWARDS_EQUAL.at("rewards.calculators", found)


def committed(moment: Moment) -> Iterator[Finding]:
    health, commit = moment.health, moment.settings.commit
    if health.ready < commit.min_experiences or health.ready_since is None:
        return
    waited = moment.now - max(health.ready_since, health.last_delivery or 0.0)
    if waited > max(_LEAST_WAIT, _INTERVALS * commit.longest_wait):
        last = "there was none before" if health.last_delivery is None else "the last one was before"
        when = f"commit.interval is {span(commit.interval)}"
        if commit.schedule is not None:
            when = f'commit.schedule is "{commit.schedule}" ({commit.timezone})'
        found = f"{health.ready} experiences wait for {span(waited)}; {when}, {last}"
        yield NOT_COMMITTED.at("the Explorer", found)
