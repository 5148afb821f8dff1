"""Calls judged as bfcl-eval judges them: our rules beside its own `ast_checker`, on its cases."""

from __future__ import annotations

import importlib
import random
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from experiments.tool_cases import fetch

from slipstream.evaluation.reports import bfcl_rules
from slipstream.evaluation.reports.benchmarks import BFCL, cases_of_benchmark
from slipstream.evaluation.reports.cases import ReportCase
from slipstream.rewards.tool_use import ToolCall

CATEGORIES = (
    "simple_python", "multiple", "parallel", "parallel_multiple", "live_simple", "live_multiple", "live_parallel",
    "live_parallel_multiple",
)  # fmt: skip
OTHER = [None, "", "Paris", 7, 7.0, 7.5, True, [], ["a"], [1, 2.0], {}, {"a": 1}, [{"a": "b"}], [[1]], -1, "True"]


@pytest.fixture(scope="module")
def bfcl(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """The package's files with its checker. The package needs half of Python's packages, for models that are not asked
    here: its list of them is replaced by one that says that names have no dots."""
    folder = tmp_path_factory.mktemp("bfcl")
    with zipfile.ZipFile(fetch(pytestconfig.rootpath / ".cache" / "bfcl")) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("bfcl_eval/")])
    models = ModuleType("bfcl_eval.constants.model_config")
    vars(models)["MODEL_CONFIG_MAPPING"] = {"m": SimpleNamespace(underscore_to_dot=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setitem(sys.modules, models.__name__, models)
        checker = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
        patch.setenv("BFCL_DATA", str(folder))
        yield folder, checker
    for name in [name for name in sys.modules if name.partition(".")[0] == "bfcl_eval"]:
        del sys.modules[name]


def right(possible: list[dict[str, Any]], chance: random.Random) -> list[ToolCall]:
    """Calls that answer a case: of each parameter one of the possible values, or none where it may be left out."""
    calls = []
    for one in possible:
        ((name, parameters),) = one.items()
        drawn = {key: chance.choice(values) if values else "" for key, values in parameters.items()}
        plain = {key: _plain(value, chance) for key, value in drawn.items() if value != ""}
        calls.append(ToolCall(bfcl_rules.called(name), plain))
    return calls


def _plain(value: Any, chance: random.Random) -> Any:
    """A possible value as a model gives it: each key of an object has possible values again."""
    if isinstance(value, list):
        return [_plain(each, chance) for each in value]
    if isinstance(value, dict):
        drawn = {key: chance.choice(some) if isinstance(some, list) and some else some for key, some in value.items()}
        return {key: each for key, each in drawn.items() if each != ""}
    return value


def changed(calls: list[ToolCall], chance: random.Random) -> list[ToolCall]:
    """The same with something changed: often wrong, and sometimes not."""
    calls = list(calls)
    place = chance.randrange(len(calls))
    call = calls[place]
    arguments = dict(call.arguments or {})
    key = chance.choice([*arguments, "more"])
    value = arguments.get(key)
    kind = chance.choice(("value", "spelling", "type", "drop", "add", "name", "fewer", "again", "order", "within"))
    if kind == "value":
        arguments[key] = chance.choice(OTHER)
    elif kind == "spelling" and isinstance(value, str):
        arguments[key] = chance.choice((value.upper(), f" {value}.", value.replace(" ", "_"), value + "s", f"'{value}"))
    elif kind == "type" and isinstance(value, int | float):
        arguments[key] = chance.choice((float(value), str(value), int(value), bool(value), value + 1))
    elif kind == "type":
        arguments[key] = chance.choice(([value], str(value)))
    elif kind == "drop":
        arguments.pop(key, None)
    elif kind == "add":
        arguments["more"] = 1
    elif kind == "within" and isinstance(value, list) and value:
        arguments[key] = chance.choice((value[::-1], value[1:], [*value, value[0]], [chance.choice(OTHER), *value[1:]]))
    elif kind == "within" and isinstance(value, dict) and value:
        inner = chance.choice([*value])
        arguments[key] = {**value, inner: chance.choice(OTHER)}
    calls[place] = ToolCall("other" if kind == "name" else call.name, arguments)
    if kind == "fewer":
        del calls[place]
    elif kind == "again":
        calls.append(calls[place])
    elif kind == "order":
        calls.reverse()
    return calls


def theirs(checker: Any, case: ReportCase, calls: list[ToolCall]) -> bool | None:
    """What the package says; None where it breaks down."""
    about = case.case.metadata[BFCL]
    made = [{call.name: dict(call.arguments or {})} for call in calls]
    try:
        found = checker.ast_checker(
            about["functions"], made, about["possible"], checker.Language.PYTHON, about["category"], "m"
        )
    except (AttributeError, IndexError, KeyError, TypeError):
        return None
    return bool(found["valid"])


@pytest.mark.slow
def test_the_rules_say_what_the_packages_own_checker_says(bfcl: tuple[Path, Any]) -> None:
    checker, chance, found = bfcl[1], random.Random(11), Counter[tuple[str, bool | None]]()
    for category in CATEGORIES:
        for case in cases_of_benchmark(f"bfcl:{category}").cases:
            assert re.fullmatch(rf"{category}_\d[\d-]*", case.case.name), "the category's own cases"
            about = case.case.metadata[BFCL]
            answer = right(about["possible"], chance)
            for calls in (answer, *(changed(answer, chance) for _ in range(12))):
                said = theirs(checker, case, calls)
                found[category, said] += 1
                try:
                    ours = bfcl_rules.accepts(category, about["functions"], about["possible"], calls)
                except (KeyError, TypeError, AttributeError, OverflowError):
                    ours = False
                assert ours is (said or False), (case.case.name, calls, about["possible"], said)
    assert all(found[category, valid] > 20 for category in CATEGORIES for valid in (True, False)), found
