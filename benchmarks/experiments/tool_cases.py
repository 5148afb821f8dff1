"""Tool-calling cases of the Berkeley Function Calling Leaderboard, for a small model.

Gorilla's `bfcl-eval` (Apache-2.0) carries its cases as JSON. It pins half of Python's packages, so its wheel is
downloaded and read, and not installed. Taken are its `simple_python` cases that are short enough for a small model on
a CPU. Each of them has one function; here it has a second one to choose from, another case's, as BFCL's `multiple`
cases have (which are too long).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_PACKAGE = "bfcl-eval==2026.3.23"
_CATEGORY = "simple_python"
_LONGEST = 650  # characters of a case's question and its function: some 150 tokens
_CHANCE = "of the cases"  # the same for every seed: what is compared is comparable

_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
"""BFCL's names of types that are not JSON Schema's; its `any` is no type at all there."""


@dataclass(frozen=True)
class Case:
    """A question, the functions to choose from, and the one call that answers it.

    Attributes:
        tools: in OpenAI's form.
        function: the name of the function that is to be called.
        expected: of each parameter the values that are right; `""` among them says that it may be left out.
    """

    question: str
    tools: list[dict[str, Any]]
    function: str
    expected: dict[str, list[Any]]

    def __len__(self) -> int:
        """Characters of the question and the functions."""
        return len(self.question) + len(json.dumps(self.tools))


def fetch(folder: Path) -> Path:
    """Downloads the wheel into a folder, unless it is there.

    Raises:
        subprocess.CalledProcessError: pip could not; it has said why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (found := sorted(folder.glob("bfcl_eval-*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), _PACKAGE]
        subprocess.run(command, check=True)
        found = sorted(folder.glob("bfcl_eval-*.whl"))
    return found[0]


def cases(wheel: Path) -> list[Case]:
    """The cases that are short enough, in the package's order."""
    with zipfile.ZipFile(wheel) as archive:
        lines, answers = (
            [json.loads(line) for line in archive.read(f"bfcl_eval/data/{path}").decode().splitlines()]
            for path in (f"BFCL_v4_{_CATEGORY}.json", f"possible_answer/BFCL_v4_{_CATEGORY}.json")
        )
    truths = {answer["id"]: answer["ground_truth"] for answer in answers}
    short = [case for raw in lines if len(case := case_of(raw, truths[raw["id"]])) <= _LONGEST]
    return with_others(short)


def with_others(single: Sequence[Case]) -> list[Case]:
    """Each case with the function of another one to choose from, in an order that tells nothing."""
    chance = random.Random(_CHANCE)
    mixed = []
    for case in single:
        other = chance.choice([each for each in single if each.function != case.function])
        mixed.append(replace(case, tools=chance.sample([*case.tools, *other.tools], 2)))
    return mixed


def split(all_cases: Sequence[Case], held_out: int) -> tuple[list[Case], list[Case]]:
    """Some to train on, and `held_out` others. A function that is to be called in those is not called in training."""
    shuffled = random.Random(_CHANCE).sample(all_cases, len(all_cases))
    test = shuffled[:held_out]
    names = {case.function for case in test}
    return [case for case in shuffled[held_out:] if case.function not in names], test


def case_of(raw: Mapping[str, Any], truth: list[dict[str, dict[str, list[Any]]]]) -> Case:
    """A case from BFCL's form of it: a line of its data, and the `ground_truth` of the same line of its answers."""
    ((name, expected),) = truth[0].items()
    return Case(
        question=raw["question"][0][0]["content"],
        tools=[{"type": "function", "function": _function(each)} for each in raw["function"]],
        function=_name(name),
        expected=expected,
    )


def _function(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": _name(raw["name"]),
        "description": raw["description"],
        "parameters": _schema(raw["parameters"]),
    }


def _name(written: str) -> str:
    """OpenAI's names have no dots; BFCL's own models of that kind are given underscores."""
    return written.replace(".", "_")


def _schema(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_schema(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    schema = {name: _schema(value) for name, value in raw.items()}
    if isinstance(kind := raw.get("type"), str):
        schema["type"] = _TYPES.get(kind, kind)
        if kind == "any":
            del schema["type"]
    return schema
