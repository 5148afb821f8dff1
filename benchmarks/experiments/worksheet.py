"""An agent that does a sum in several steps: one operation a turn, which a calculator carries out on a worksheet.

The sums are reasoning-gym's `chain_sum` with three or four numbers of one or two digits. A turn shows the model what
is left of the sum. It writes the first operation of it ("46 + 60"), which the calculator carries out, or, when one
number is left, that number, which is the answer. What it writes otherwise has no effect and costs a turn.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import reasoning_gym  # type: ignore[import-untyped]

from slipstream_client.tuner import JudgeOutput, WorkflowOutput
from slipstream_client.tuner.model import TunerModel

MOST_TURNS = 6  # a sum of four numbers takes four
_MAX_TOKENS = 16  # "-123 + 45" takes nine
_HELD_OUT_SEED = 20_000  # far from the seeds of training, and the same for all of them
_OPERATION = re.compile(r"(-?\d+) ?([-+]) ?(-?\d+)")
_NUMBER = re.compile(r"-?\d+")
_CARRY_OUT = {"+": operator.add, "-": operator.sub}
_SYSTEM = (
    "Calculate step by step. In each turn write only the first operation; it is carried out for you. "
    "When one number is left, write that number."
)
_EXAMPLE = (("40 - 8 + 31", "40 - 8"), ("32 + 31", "32 + 31"), ("63", "63"))
_RIGHT, _ON_THE_WAY, _SHORT = 0.5, 0.3, 0.2  # weights of the reward: they make 1


@dataclass(frozen=True)
class Solution:
    """What a run came to.

    Args:
        answer: the number that the model wrote at the end, None where it came to no end.
        turns: how many it took.
        well_formed: how many of them were an operation or a number.
        carried_out: how many of them were the next operation.
        operations: how many the sum has.
    """

    answer: str | None
    turns: int
    well_formed: int
    carried_out: int
    operations: int


def training_sums(seed: int, count: int) -> list[dict[str, str]]:
    """Other sums than those held out, as rows with `sum` and `answer`."""
    held_out = {row["sum"] for row in held_out_sums(256)}
    return [row for row in _sums(seed, 2 * count) if row["sum"] not in held_out][:count]


def held_out_sums(count: int) -> list[dict[str, str]]:
    return _sums(_HELD_OUT_SEED, count)


def _sums(seed: int, count: int) -> list[dict[str, str]]:
    data = reasoning_gym.create_dataset(
        "chain_sum", seed=seed, size=count, min_terms=3, max_terms=4, min_digits=1, max_digits=2
    )
    return [{"sum": _left_of_equals(entry["question"]), "answer": entry["answer"]} for entry in data]


def _left_of_equals(question: str) -> str:
    """`State the final answer to the following arithmetic problem: 3 + 4 =` is `3 + 4`."""
    return question.rpartition(":")[2].removesuffix("=").strip()


async def solve(task: dict[str, str], model: TunerModel) -> WorkflowOutput:
    """The workflow: AgentScope's signature, the openai SDK, and nothing of training."""
    left = task["sum"].split()
    operations = len(left) // 2
    answer, turns, well_formed = None, 0, 0
    while answer is None and turns < MOST_TURNS:
        completion = await model.async_client.chat.completions.create(
            model=model.model_name, messages=_messages(left), max_tokens=_MAX_TOKENS
        )
        turns += 1
        written = (completion.choices[0].message.content or "").strip()
        if _NUMBER.fullmatch(written):
            answer = written
            well_formed += 1
        elif operation := _OPERATION.fullmatch(written):
            left = carried_out(left, operation.groups())
            well_formed += 1
    return WorkflowOutput(response=Solution(answer, turns, well_formed, operations - len(left) // 2, operations))


def carried_out(left: Sequence[str], operation: Sequence[str]) -> list[str]:
    """The worksheet after an operation; one that is not its first leaves it as it is."""
    if list(operation) != list(left[:3]):
        return list(left)
    first, sign, second = operation
    return [str(_CARRY_OUT[sign](int(first), int(second))), *left[3:]]


def judge(task: dict[str, str], response: Solution) -> JudgeOutput:
    """0.5 for the right answer, 0.3 for operations carried out, and 0.2 for the right answer in as few turns as can be.

    Well-formed turns are not rewarded for themselves: a wrong number written at once is well-formed, and was what the
    model had learned after three steps when they were.
    """
    right = float(response.answer == task["answer"])
    reward = (
        _RIGHT * right
        + _ON_THE_WAY * response.carried_out / response.operations
        + _SHORT * right * min((response.operations + 1) / response.turns, 1)
    )
    formed = response.well_formed / response.turns
    return JudgeOutput(reward=reward, metrics={"right": right, "format": formed, "turns": float(response.turns)})


def _messages(left: Sequence[str]) -> Any:
    messages = [{"role": "system", "content": _SYSTEM}]
    for shown, written in _EXAMPLE:
        messages += [{"role": "user", "content": shown}, {"role": "assistant", "content": written}]
    return [*messages, {"role": "user", "content": " ".join(left)}]
