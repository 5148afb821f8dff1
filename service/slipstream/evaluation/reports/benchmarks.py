"""Benchmarks as cases: the Berkeley Function Calling Leaderboard, and the tasks of reasoning-gym."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slipstream.evaluation.cases import AskedCase
from slipstream.evaluation.metrics import ExpectedCall
from slipstream.evaluation.reports.bfcl_rules import called
from slipstream.evaluation.reports.cases import CaseSet, ReportCase
from slipstream.evaluation.reports.names import ReportError

BFCL = "bfcl"
"""Key of a case's metadata: what its rules need."""
GYM = "reasoning_gym"

BFCL_DATA = "BFCL_DATA"
"""Environment variable: a folder of bfcl-eval."""

_CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance", "live_simple", "live_multiple",
    "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
)  # fmt: skip
"""Those of one turn whose calls are in Python's types."""
_DEFAULT = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")

_TYPES = {"float": "number", "dict": "object", "tuple": "array", "any": "string"}
"""The benchmark's names of types in those of JSON Schema, as its own requests to OpenAI's API have them."""

_MOST = 10_000


def cases_of_benchmark(text: str) -> CaseSet:
    """Read the cases of a benchmark by its name.

    Args:
        text: `bfcl[:CATEGORY,...]` or `reasoning-gym:NAME[:SIZE[:SEED]]`.

    Raises:
        ReportError: there is none of this name, or its package is not there.
    """
    name, _, rest = text.partition(":")
    if name == "bfcl":
        return _bfcl(rest)
    if name == "reasoning-gym":
        return _gym(rest)
    raise ReportError(
        f"--benchmark: expected bfcl[:CATEGORY,...] or reasoning-gym:NAME[:SIZE[:SEED]], found {text[:200]!r}"
    )


def _bfcl(rest: str) -> CaseSet:
    chosen = tuple(rest.split(",")) if rest else _DEFAULT
    for category in chosen:
        if category not in _CATEGORIES:
            raise ReportError(
                f"--benchmark bfcl: expected categories of {', '.join(_CATEGORIES)}; found {category[:100]!r}"
            )
    folder = _bfcl_folder()
    return CaseSet(f"bfcl ({', '.join(chosen)})", [case for each in chosen for case in _bfcl_cases(folder, each)])


def _bfcl_folder() -> Path:
    """
    Raises:
        ReportError: bfcl-eval is not there.
    """
    given = os.environ.get(BFCL_DATA)
    if given is None and (spec := find_spec("bfcl_eval")) is not None and spec.origin is not None:
        given = str(Path(spec.origin).parent)
    places = [] if given is None else [Path(given), Path(given, "data"), Path(given, "bfcl_eval", "data")]
    for place in places:
        if (place / "possible_answer").is_dir():
            return place
    raise ReportError(
        f"--benchmark bfcl: expected the package bfcl-eval, or {BFCL_DATA} to name a folder that has it; "
        f"found {'none of the two' if given is None else f'no possible_answer in {given}'}"
    )


def _bfcl_cases(folder: Path, category: str) -> Iterator[ReportCase]:
    truths = {}
    if not category.endswith("relevance"):
        truths = {answer["id"]: answer["ground_truth"] for answer in _lines(folder / "possible_answer", category)}
    for raw in _lines(folder, category):
        try:
            functions = raw["function"]
            request = {"messages": raw["question"][0], "tools": [_tool(function) for function in functions]}
            possible = truths.get(raw["id"])
            metadata = {BFCL: {"id": raw["id"], "category": category, "functions": functions, "possible": possible}}
            expected = None if possible is None else [
                ExpectedCall(called(name), values) for one in possible for name, values in one.items()
            ]  # fmt: skip
            if category.endswith("irrelevance"):
                expected = []
            case = AskedCase(raw["id"], _key(request, metadata), raw["id"], request, metadata)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ReportError(f"{folder}: expected cases of bfcl-eval 2026.3.23 in {category}; {error!r}") from error
        yield ReportCase(case, expected, due=not category.endswith("irrelevance"))


def _lines(folder: Path, category: str) -> list[dict[str, Any]]:
    """
    Raises:
        ReportError: there is no such file, or it is not what was expected.
    """
    files = sorted(path for path in folder.iterdir() if re.fullmatch(rf"BFCL_v\d+_{category}\.json", path.name))
    if not files:
        raise ReportError(f"--benchmark bfcl: expected a file BFCL_v4_{category}.json in {folder}, found none")
    try:
        text = files[-1].read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise ReportError(f"{files[-1]}: expected a JSON object a line; {error}") from error


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": function["description"], "parameters": _schema(function["parameters"])}
    return {"type": "function", "function": {"name": called(function["name"]), **described}}


def _schema(raw: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in raw.items() if name in ("description", "enum", "default", "required")}
    found["type"] = _TYPES.get(raw["type"], raw["type"])
    if isinstance(raw.get("properties"), Mapping):
        found["properties"] = {name: _schema(each) for name, each in raw["properties"].items()}
    if isinstance(raw.get("items"), Mapping):
        found["items"] = _schema(raw["items"])
    return found


def _gym(rest: str) -> CaseSet:
    match = re.fullmatch(r"([a-z0-9_]{1,64})(?::(\d{1,5}))?(?::(\d{1,9}))?", rest)
    if match is None:
        raise ReportError(f"--benchmark: expected reasoning-gym:NAME[:SIZE[:SEED]], found {rest[:200]!r}")
    name, size, seed = match[1], int(match[2] or 100), int(match[3] or 0)
    if not 1 <= size <= _MOST:
        raise ReportError(f"--benchmark reasoning-gym: expected a size from 1 to {_MOST}, found {size}")
    try:
        from reasoning_gym.factory import DATASETS  # type: ignore[import-untyped]
        from reasoning_gym.utils import SYSTEM_PROMPTS  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise ReportError(
            "--benchmark reasoning-gym: needs the package reasoning-gym, which the extra [demo] brings"
        ) from error
    if name not in DATASETS:
        raise ReportError(f"--benchmark reasoning-gym: there is no task {name!r}; it has {', '.join(sorted(DATASETS))}")
    asked = {"name": name, "size": size, "seed": seed}
    cases = []
    for place, entry in enumerate(gym_of(name, size, seed)):
        request = {
            "messages": [
                {"role": "system", "content": SYSTEM_PROMPTS["default"].strip()},
                {"role": "user", "content": str(entry["question"])},
            ]
        }
        metadata = {GYM: {**asked, "place": place}}
        cases.append(ReportCase(AskedCase(f"{name}-{place}", _key(request, metadata), f"{place}", request, metadata)))
    return CaseSet(f"reasoning-gym {name}, {size} tasks, seed {seed}", cases)


def gym_of(name: str, size: int, seed: int) -> Any:
    """Make the tasks of reasoning-gym, the same for the same arguments."""
    from reasoning_gym.factory import create_dataset

    return create_dataset(name, size=size, seed=seed)


def _key(request: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    asked = json.dumps([request, metadata], sort_keys=True).encode()
    return hashlib.sha256(asked).hexdigest()[:32]
