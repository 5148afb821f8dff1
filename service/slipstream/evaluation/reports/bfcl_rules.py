"""Tool calls judged as the Berkeley Function Calling Leaderboard judges them: right as a whole, or wrong.

The rules are those of `bfcl_eval.eval_checker.ast_eval.ast_checker` (bfcl-eval 2026.3.23, Apache-2.0) for its
categories in Python: types are those of the function's description, texts are compared without case, spaces and some
punctuation, and an integer may stand for a float. What seems odd here is odd there, and kept, because scores are only
comparable if they are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.rewards.tool_use import ToolCall

_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_WITH_ITEMS = ("array", "tuple")


def accepts(
    category: str, functions: Sequence[Mapping[str, Any]], possible: Sequence[Mapping[str, Any]], made: list[ToolCall]
) -> bool:
    """Return whether calls answer a case.

    Args:
        category: of the benchmark, such as `live_parallel_multiple`.
        functions: as the benchmark describes them, with its own names of types.
        possible: the right calls: of each function the possible values of its parameters.
        made: calls, in their order.
    """
    if len(made) != len(possible):
        return False
    if "parallel" not in category:
        function = _described(functions, possible[0]) if "multiple" in category else functions[0]
        return _is_right(function, possible[0], made[0])
    left = list(made)
    for wanted in possible:
        function = _described(functions, wanted)
        fits = next((place for place, call in enumerate(left) if _is_right(function, wanted, call)), None)
        if fits is None:
            return False
        del left[fits]
    return True


def called(name: str) -> str:
    """Return the name under which a function is offered: OpenAI's API allows no dots."""
    return name.replace(".", "_")


def _described(functions: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in functions if each["name"] == next(iter(wanted))), None)


def _is_right(function: Mapping[str, Any] | None, wanted: Mapping[str, Any], call: ToolCall) -> bool:
    if function is None or call.arguments is None or call.name != called(function["name"]):
        return False
    possible = next(iter(wanted.values()))
    properties = function["parameters"]["properties"]
    if any(name not in call.arguments for name in function["parameters"]["required"]):
        return False
    for name, value in call.arguments.items():
        if name not in properties or name not in possible:
            return False
        if not _is_possible(value, possible[name], properties[name]):
            return False
    return all(name in call.arguments or "" in values for name, values in possible.items())


def _is_possible(value: Any, possible: Sequence[Any], description: Mapping[str, Any]) -> bool:
    named = description["type"]
    expected = _TYPES[named]
    items = _TYPES[description["items"]["type"]] if named in _WITH_ITEMS else None
    if named == "float" and type(value) is int:
        value = float(value)
    variable = _is_variable(value, possible, expected, items)
    if variable is None:
        return False
    if not variable:
        if expected is dict:
            return any(each != "" and _is_possible_dict(value, each) for each in possible)
        if expected is list and items is dict:
            return any(_are_possible_dicts(value, each) for each in possible)
        if expected is str:
            return _plain(value) in [_plain(each) for each in possible if type(each) is str]
        if expected is list:
            return [_plain(each) for each in value] in [[_plain(each) for each in some] for some in possible]
    return value in possible


def _is_variable(value: Any, possible: Sequence[Any], expected: type, items: type | None) -> bool | None:
    """Return None if the type is wrong, True if the possible values are of another type than the description says (the
    name of a variable stands there), else False."""
    there = next((type(each) for each in possible if each != ""), None)
    if type(value) is expected:
        if items is not None and not any(_has_items(value, some, items) for some in possible):
            return None
        return there is not None and there is not expected
    return True if there is not None and type(value) is there else None


def _has_items(value: Any, some: Any, items: type) -> bool:
    return type(some) is not list or all(_is_variable(item, some, items, None) is not None for item in value)


def _is_possible_dict(value: Any, possible: Mapping[str, Sequence[Any]]) -> bool:
    if not isinstance(value, dict):
        return False
    right = all(key in possible and _plain(each) in list(map(_plain, possible[key])) for key, each in value.items())
    return right and all(key in value or "" in values for key, values in possible.items())


def _are_possible_dicts(value: Sequence[Any], some: Sequence[Any]) -> bool:
    return len(value) == len(some) and all(
        one != "" and _is_possible_dict(each, one) for each, one in zip(value, some, strict=True)
    )


def _plain(value: Any) -> Any:
    if type(value) is not str:
        return value
    return re.sub(r"[ ,./\-_*^]", "", value).lower().replace("'", '"')
