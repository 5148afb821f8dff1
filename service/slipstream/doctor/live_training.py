"""Live problems of training that goes nowhere without a word: versions that are like the one before, answers of another
version than the one that is said, calculators that tell nothing apart."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.doctor.findings import Finding, Problem
from slipstream.doctor.moment import Moment
from slipstream.terminal.spans import span

_LOADS_WITHIN = 900.0
"""Seconds within which an Explorer has loaded a version that was published."""

WEIGHTS_UNCHANGED = Problem(
    "live.weights_unchanged",
    "error",
    why="The version that is served has the same weights, byte for byte, as one that was made before it: the Trainer "
    "counts steps and learns nothing.",
    fix="Look into the Trainer's log for a learning rate of 0 (a schedule at its end, `lr`), advantages that are all 0 "
    "(`live.rewards_equal`), skipped steps (a gradient that is not finite), or weights that are frozen or are not what "
    "it saves.",
)
OTHER_VERSION = Problem(
    "live.other_version",
    "error",
    why="Answers come from another version than the one that is said or was asked for: rewards are counted for the "
    "wrong one, what is learned is not used, or experiences are of an old policy.",
    fix="Look for a failed load in the log of the Explorer (or the lane), compare its checkpoint directory with the "
    "Trainer's, and restart it.",
)
JUDGE_CONSTANT = Problem(
    "live.judge_constant",
    "warning",
    why="A calculator that gives the same value to every answer tells none from another: its part of the reward "
    "teaches nothing, and hides how little the others do.",
    fix="Ask it about a good and a bad answer by hand: a judge whose prompt or parsing fails, a check that always (or "
    "never) holds, a reference that is missing. If the policy is simply right by now, take it out or make it harder.",
)

PROBLEMS = (WEIGHTS_UNCHANGED, OTHER_VERSION, JUDGE_CONSTANT)


def weights(moment: Moment) -> Iterator[Finding]:
    """A version that was trained and is the same as one before."""
    served, like = moment.health.served, moment.health.weights_like
    if served is not None and like is not None:
        yield WEIGHTS_UNCHANGED.at("the Trainer", f"version {served.version} has the weights of version {like}")


def versions(moment: Moment) -> Iterator[Finding]:
    """Answers of another version than the one that is said or was asked for."""
    if (other := moment.other_version) is not None:
        found = f"{other.answers} of the newest {other.compared} answers were not given by the version that it said, "
        found += f"mostly by version {other.recorded} instead of {other.said}"
        yield OTHER_VERSION.at(moment.settings.explorer.base_url, found)
    newest, since = moment.published
    said, together = moment.versions[0], moment.apart_since is None
    late = moment.now - max(since, moment.explorer_since or 0.0)
    if moment.explorer_up and together and None not in (newest, said) and said != newest and late >= _LOADS_WITHIN:
        found = f"the Explorer serves version {said}, and the Trainer's directory names version {newest} for "
        yield OTHER_VERSION.at(moment.settings.explorer.base_url, f"{found}{span(moment.now - since)}")
    shown, asked = moment.lane_steps
    if None not in (shown, asked) and shown != asked:
        found = f"the lane serves its step {shown}, and users are to be answered by its step {asked}: production does"
        yield OTHER_VERSION.at("serving.lane", found)


def judges(moment: Moment) -> Iterator[Finding]:
    """Calculators that give one value to all."""
    for one in moment.constant:
        found = (
            f"{one.name} gave {one.value:g} to each of the newest {one.runs} runs that it scored, of {one.tasks} tasks"
        )
        yield JUDGE_CONSTANT.at("rewards.calculators", found)
