"""Tool-calling cases of the Berkeley Function Calling Leaderboard, for a small model.

Gorilla's `bfcl-eval` (Apache-2.0) carries its cases as JSON. It pins half of Python's packages, so its wheel is
downloaded and read, and not installed. Taken are the cases of `multiple`: a question, two to four functions to choose
from, and the one call that answers it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PACKAGE = "bfcl-eval==2026.3.23"
_CATEGORY = "multiple"
_DESCRIPTION = 80  # characters of a function's, at most
_LONGEST = 700  # characters of a case's question and functions: some 200 tokens, nine of ten cases
_CHANCE = "which cases are held out"  # the same for every seed: what is compared is comparable


@dataclass(frozen=True)
class Case:
    """A question with functions to choose from.

    Attributes:
        functions: signatures, as in Python, each with what it is for.
        function: the name of the one that is to be called.
        expected: of each parameter the values that are right; `""` among them says that it may be left out.
    """

    question: str
    functions: list[str]
    function: str
    expected: dict[str, list[Any]]


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
    found = [case_of(raw, truths[raw["id"]]) for raw in lines]
    return [case for case in found if len(case.question) + sum(map(len, case.functions)) <= _LONGEST]


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
        functions=[_signature(each) for each in raw["function"]],
        function=_name(name),
        expected=expected,
    )


def _signature(function: Mapping[str, Any]) -> str:
    """Without types: a small model copies them into its call."""
    parameters = function["parameters"]
    names = [name if name in parameters["required"] else f"{name}=None" for name in parameters["properties"]]
    purpose = function["description"].split(". ")[0].rstrip(".")[:_DESCRIPTION]
    return f"{_name(function['name'])}({', '.join(names)})  # {purpose}"


def _name(written: str) -> str:
    """A name that Python takes for one; BFCL gives dots to some, and underscores to models that take none."""
    return written.replace(".", "_")
