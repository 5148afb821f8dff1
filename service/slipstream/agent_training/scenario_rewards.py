"""Rewards of the articles' scenarios: mathematics, tool use, a game of two sides; and a base for one's own.

Each is a sum of weighted parts that is brought into [0, 1] (`rewards/part_weights.py`); the sum itself is the part
`worth`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.agent_training.trajectories import trajectory_of
from slipstream.evaluation.metrics import argument_accuracy, exactly, tool_accuracy
from slipstream.isolation import Isolation
from slipstream.rewards.calculator import Reward, checked
from slipstream.rewards.calculators.mathematics import Math
from slipstream.rewards.part_weights import PartWeights
from slipstream.rewards.tool_use import parsed
from slipstream.trajectory import PolicyCall, Run, Task

MATH = {"correctness": 3.0, "steps_penalty": -0.1, "format_bonus": 0.5}
TOOL_USE = {"correct_tool": 1.0, "correct_args": 0.5, "tool_success": 1.0, "invalid_tool": -2.0}
GAME = {"team_win": 10.0, "individual_survive": 5.0, "successfully_blame": 2.0, "exposed_penalty": -5.0}


class RewardFunction(ABC):
    """A reward of one's own over a trajectory. The sidecar asks it as a `custom` calculator (`module:Class`)."""

    @abstractmethod
    def compute(self, trajectory: Mapping[str, Any]) -> float:
        """Return the reward of a trajectory, as `DataCollector` writes it."""

    def calculate(self, run: Run) -> Reward:
        """Return the reward of a run of the sidecar.

        Raises:
            ScoringError: it is no finite number.
        """
        return checked(self.compute(trajectory_of(run)))


class MathReward:
    """A right answer, its form, and how few steps it took.

    Steps count against a right answer alone: a wrong one that is given at once would be worth more than one that was
    worked at, which is what a small model learns first.

    Args:
        most_steps: beyond them a step costs nothing more.
        isolation: of the process that compares; without it one of its own.
    """

    def __init__(
        self, weights: Mapping[str, float] | None = None, most_steps: int = 20, isolation: Isolation | None = None
    ) -> None:
        self._parts = PartWeights(_known("reward_function", weights, MATH), {"steps_penalty": float(most_steps)})
        self._own = Isolation() if isolation is None else None
        self._math = Math().build(isolation or self._own or Isolation())

    async def score(self, answer: str, reference: str, steps: int = 0, well_formed: bool = True) -> Reward:
        """Return the reward of an answer.

        Args:
            answer: a text; equal is what mathematics calls equal.
            steps: that it took.

        Raises:
            ScoringError: the reference cannot be read as mathematics.
            NotFinished: the comparison took too long.
        """
        message = {"role": "assistant", "content": answer}
        call = PolicyCall({"messages": []}, {"choices": [{"message": message}]}, "")
        run = Run(Task("math", "math", (), metadata={"reference": reference}), "math", 0, (call,), kind="agent_replay")
        right = self._math.calculate(run)
        equal = float(await right if hasattr(right, "__await__") else right)  # type: ignore[arg-type]
        parts = {"correctness": equal, "steps_penalty": steps * equal, "format_bonus": float(well_formed)}
        return self._parts.reward(parts)

    def close(self) -> None:
        """End the process that compares, if it is its own."""
        if self._own is not None:
            self._own.close()


class ToolUseReward:
    """The right tools, the right arguments, calls that succeed, and none that cannot be carried out.

    Args:
        tools: names of those that there are; without them only a call without a name or without readable arguments
            counts as invalid.
    """

    def __init__(self, weights: Mapping[str, float] | None = None, tools: Sequence[str] = ()) -> None:
        self._parts = PartWeights(_known("reward_function", weights, TOOL_USE))
        self._tools = frozenset(tools)

    def score(
        self,
        expected: Sequence[Mapping[str, Any]],
        made: Sequence[Mapping[str, Any]],
        succeeded: Sequence[bool] | None = None,
    ) -> Reward:
        """Return the reward of the calls of one task.

        Args:
            expected: tool calls that are right.
            made: those of the agent.
            succeeded: of each of these, whether it was carried out without an error; None if they were not carried out,
                and then a call is taken to succeed if it is right.

        Raises:
            ValueError: an expected call cannot be read.
        """
        wanted, calls = [exactly(parsed(raw)) for raw in expected], [parsed(raw) for raw in made]
        arguments = argument_accuracy(wanted, calls)
        right = float(not calls) if arguments is None else arguments
        invalid = [
            not call.name or call.arguments is None or (bool(self._tools) and call.name not in self._tools)
            for call in calls
        ]
        parts = {
            "correct_tool": tool_accuracy(wanted, calls),
            "correct_args": right,
            "tool_success": right if succeeded is None else _share(succeeded, none=float(not wanted)),
            "invalid_tool": _share(invalid, none=0.0),
        }
        return self._parts.reward(parts)


class GameReward:
    """A game of two sides as one of them sees it."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._parts = PartWeights(_known("reward_function", weights, GAME))

    def score(self, result: Mapping[str, float]) -> Reward:
        """Return the reward of a game.

        Args:
            result: `team_win`, `individual_survive`, `successfully_blame` and `exposed_penalty`, each in [0, 1].
        """
        return self._parts.reward(result)


def _known(name: str, given: Mapping[str, float] | None, defaults: Mapping[str, float]) -> dict[str, float]:
    weights = {**defaults, **(given or {})}
    if unknown := weights.keys() - defaults.keys():
        raise ValueError(f"{name}: expected {', '.join(defaults)}, found {', '.join(sorted(unknown))}")
    return weights


def _share(flags: Sequence[bool], none: float) -> float:
    return sum(flags) / len(flags) if flags else none
