"""Rewards that an agent's developer gives to a replay, in the agent's own process."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipstream_client.side_effects.recording import SideEffect, blocked_tools


@dataclass(frozen=True)
class RunResult:
    """A replay that has returned.

    Attributes:
        task_id, run_id: of the run; run ids count from 0 within the task.
        args, kwargs: the inputs, as they were when production's call began. Runs share them: not to be changed.
        output: what the agent returned now; of a generator the list of its items.
        production_output: what it returned to the user.
        labels, metadata: of the marks around and inside the user's call, such as a `reference`.
        msg_ids: of the policy's answers, in the order in which the calls began.
        policy_version: of the model that gave them; None where the sidecar does not know.
        side_effects: what became of the calls of guarded tools.
        latency: seconds that the replay took.
        sandboxes: the objects that guarded tools ran on, by class; they are left once the run has its reward.
    """

    task_id: str
    run_id: int
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any
    production_output: Any
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]
    msg_ids: tuple[str, ...]
    policy_version: int | None
    side_effects: tuple[SideEffect, ...]
    latency: float
    sandboxes: Mapping[type, Any] = field(default_factory=dict)

    @property
    def blocked(self) -> tuple[str, ...]:
        """The guarded tools that were kept from a write that production did not make, by name, once a call."""
        return blocked_tools(self.side_effects)


@dataclass(frozen=True)
class Reward:
    """A reward and what it is made of.

    Attributes:
        value: finite, and within the sidecar's `rewards.clip`, by default 0 to 1.
        breakdown: the value of each part, finite.
    """

    value: float
    breakdown: Mapping[str, float] = field(default_factory=dict)


Outcome = float | Reward | tuple[float, Mapping[str, float]]


class RewardCalculator(Protocol):
    """Anything that gives a replay a reward; a plain or an async method."""

    def calculate(self, run: RunResult, /) -> Outcome | Awaitable[Outcome]: ...


RewardFunction = Callable[[RunResult], Outcome | Awaitable[Outcome]]


def as_function(reward: RewardCalculator | RewardFunction | None) -> RewardFunction | None:
    """The function that gives the reward. Raises TypeError for what is none."""
    function = getattr(reward, "calculate", reward)
    if function is not None and (not callable(function) or isinstance(reward, type)):
        raise TypeError(f"reward: expected a function of a run, or an object with calculate(run), found {reward!r}")
    return function


def checked(outcome: object) -> Reward:
    """A function's outcome as a reward of plain finite floats.

    Raises:
        ValueError: it is none, or not finite; the message names the part.
    """
    value: Any = outcome
    parts: Any = {}
    if isinstance(outcome, Reward):
        value, parts = outcome.value, outcome.breakdown
    elif isinstance(outcome, tuple) and len(outcome) == 2:
        value, parts = outcome
    if not isinstance(parts, Mapping):
        raise ValueError(f"breakdown: expected a mapping of names to numbers, found {parts!r}")  # noqa: TRY004 - a value
    breakdown = {str(name): _finite(f"breakdown.{name}", part) for name, part in parts.items()}
    return Reward(_finite("reward", value), breakdown)


def _finite(what: str, value: Any) -> float:
    kind = type(value)  # numpy's and torch's scalars are numbers too, and numpy's bool is none
    if kind.__name__.startswith("bool") or not hasattr(kind, "__float__"):
        raise ValueError(f"{what}: expected a finite number, found {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{what}: expected a finite number, found {value!r}")
    return number
