"""Function calls of the Berkeley Function Calling Leaderboard, as a second kind of task.

The cases, their prompt and their scores are those of `experiments/tool_use.py`. No function that is to be called in a
held-out case is to be called in training.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.tool_cases import Case, cases, fetch, split
from experiments.tool_scoring import Score, score
from experiments.tool_use import BEGINNING, asked
from openai import AsyncOpenAI

from data_training.rig import in_parallel

_HELD_OUT = 64
_MAX_TOKENS = 48
MEASURES = ("called", "tool", "arguments", "recall")


def training_cases(folder: Path, seed: int, count: int) -> list[Case]:
    """Cases to train on, drawn by a seed."""
    return random.Random(seed).sample(_split(folder)[0], count)


def held_out_cases(folder: Path) -> list[Case]:
    """The cases that are measured on, the same for every seed."""
    return _split(folder)[1]


def write_chats(path: Path, given: Sequence[Case]) -> None:
    """Write a file for OpenAI's fine-tuning: a chat a line, whose last message is a right call."""
    with path.open("w") as file:
        for case in given:
            answer = {"role": "assistant", "content": _right_call(case)}
            # What is an example for every question is not an answer to learn.
            before = [{**each, "weight": 0} if each["role"] == "assistant" else each for each in _prompt(case)]
            file.write(json.dumps({"messages": [*before, answer]}) + "\n")


async def measure(base_url: str, model: str, given: Sequence[Case]) -> dict[str, float]:
    """Answer each case once; means of the parts of the score."""
    client = AsyncOpenAI(base_url=base_url, api_key="not-needed", timeout=1800)
    scores = await in_parallel([_scored(client, model, case) for case in given])
    await client.close()
    return {name: fmean(getattr(each, name) for each in scores) for name in MEASURES}


async def _scored(client: AsyncOpenAI, model: str, case: Case) -> Score:
    answer = await client.chat.completions.create(
        model=model, messages=_prompt(case), max_tokens=_MAX_TOKENS, stop=["\n"], temperature=0.7
    )
    return score(answer.choices[0].message.content or "", case.function, case.expected)


def _prompt(case: Case) -> list[Any]:
    return [*BEGINNING, {"role": "user", "content": asked(case.functions, case.question)}]


def _right_call(case: Case) -> str:
    """The call with the first right value of each parameter, without those that may be left out."""
    given: Mapping[str, Sequence[Any]] = case.expected
    arguments = {name: values[0] for name, values in given.items() if "" not in values}
    return f"{case.function}({', '.join(f'{name}={_value(value)}' for name, value in arguments.items())})"


def _value(value: Any) -> str:
    """As in Python. Of a dictionary each value is a list of right ones."""
    if isinstance(value, dict):
        value = {name: values[0] for name, values in value.items() if "" not in values}
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _split(folder: Path) -> tuple[list[Case], list[Case]]:
    return split(cases(fetch(folder)), _HELD_OUT)
