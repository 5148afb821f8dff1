"""Says what is wrong with a request, in one shape: the field, what was expected there, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from slipstream.config.problems import dotted, known_keys, shown, wanted

_MOST, _LONGEST_FIELD = 10, 256
"""Problems that are told, and characters of a field's name: a body may be made of unknown names alone."""

_OBJECT = "a JSON object"
_EXPECTED = {
    "string_type": "text",
    "string_unicode": "text in valid Unicode",
    "string_too_short": "text of {min_length} or more characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "too_short": "a list of {min_length} or more",
    "too_long": "at most {max_length} entries",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "literal_error": "{expected}",
    "recursion_loop": "fewer levels within each other",
}
"""By pydantic's name of the problem, with what it tells of it."""


def describe(problems: Sequence[ErrorDetails], model: type[BaseModel] | None, *, values: bool = True) -> str:
    """One text for all of them.

    Args:
        model: of the body, for the fields that it knows.
        values: whether what was found is shown; logs hold no bodies.
    """
    texts = [f"{field(problem) or 'the body'}: {_told(problem, model, values)}" for problem in problems[:_MOST]]
    if len(problems) > _MOST:
        texts.append(f"and {len(problems) - _MOST} more")
    # what was found may be half of a surrogate pair, which no answer can hold
    return "; ".join(texts).encode("utf-8", "backslashreplace").decode()


def field(problem: ErrorDetails) -> str:
    """The path of the field; empty for the body as a whole."""
    return dotted(problem["loc"])[:_LONGEST_FIELD]


def _told(problem: ErrorDetails, model: type[BaseModel] | None, values: bool) -> str:
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = [] if model is None else known_keys(model, problem["loc"][:-1])
        return f"unknown field; known here: {', '.join(known)}"
    if kind == "missing" and problem["loc"]:
        return "needed, and not given"
    expected = _OBJECT if kind == "missing" else wanted(problem, _EXPECTED)
    return f"expected {expected}{f', found {_found(problem)}' if values and ', found ' not in expected else ''}"


def _found(problem: ErrorDetails) -> str:
    found = problem["input"]
    if isinstance(found, bytes):
        return "one without the header content-type: application/json"
    if "actual_length" in problem.get("ctx", {}):
        return f"{problem['ctx']['actual_length']}"
    if problem["type"] == "string_too_long":
        return f"{len(found)}"
    return "nothing" if found is None and not problem["loc"] else shown(problem, mapping="JSON object")
