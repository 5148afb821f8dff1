"""Says what is wrong with a configuration: one line a problem, with the key, what was expected and what was found."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from slipstream.config.masking import SECRET_NAME
from slipstream.redaction.kinds import without_secrets

KeyPath = tuple[str | int, ...]

_SECRET_VALUE = re.compile(r"://.*@")  # a URL with a password
_LONGEST_FOUND = 80  # characters: a line stays a line

_EXPECTED = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "string_type": "text",
}


def dotted(path: KeyPath) -> str:
    """A key's path as people write it: `selection.any.1.sampling.rate`."""
    return ".".join(map(str, path))


def describe(error: ValidationError, model: type[BaseModel], variables: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """One line for each problem.

    Args:
        model: what was validated, for the keys that it knows.
        variables: which environment variable set which key.
    """
    for detail in error.errors(include_url=False):
        path = detail["loc"]
        texts = tuple(map(str, path))
        setter = next((variables[texts[:end]] for end in range(len(texts), 0, -1) if texts[:end] in variables), None)
        yield f"{dotted(path)}: {_problem(detail, model)}" + (f" (set by {setter})" if setter else "")


def _problem(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"unknown key; known here: {', '.join(known_keys(model, detail['loc'][:-1]))}"
    if kind == "missing":
        return "needed, and not given"
    expected = wanted(detail, _EXPECTED)
    return f"expected {expected}" + ("" if "; found " in expected else f"; found {shown(detail)}")


def wanted(detail: ErrorDetails, words: Mapping[str, str]) -> str:
    """Return what was expected, by the words for each type of problem, or in pydantic's words if there are none."""
    if detail["type"] == "value_error":  # our own validators raise what they expected
        return str(detail["ctx"]["error"])
    if detail["type"] in words:
        return words[detail["type"]].format(**detail.get("ctx", {}))
    return re.sub(r".* should (?:be |have )?", "", detail["msg"], count=1)


def shown(detail: ErrorDetails, mapping: str = "mapping") -> str:
    """Return what was found, on one line and without secrets; `mapping` is the word for a mapping."""
    found = detail["input"]
    if isinstance(found, dict):
        return f"a {mapping}" if found else f"an empty {mapping}"
    if isinstance(found, list | tuple):
        return "a list" if found else "an empty list"
    key = next((part for part in reversed(detail["loc"]) if isinstance(part, str)), "")
    text = found if isinstance(found, str) else json.dumps(found, default=str)
    if SECRET_NAME.search(key) or _SECRET_VALUE.search(text):
        return "a value that is not shown here"
    text = without_secrets(text)
    text = text if len(text) <= _LONGEST_FOUND else text[:_LONGEST_FOUND] + "…"
    return json.dumps(text, ensure_ascii=False) if isinstance(found, str) else text


def known_keys(model: type[BaseModel], path: KeyPath) -> list[str]:
    """The keys of the model below `model` that a path leads to; items of lists and tags of unions are passed over."""
    models = [model]
    for key in path:
        fields = [info for at in models for name, info in at.model_fields.items() if key in (name, info.alias)]
        models = [below for info in fields for below in _models(info.annotation)] or models
    return [info.alias or name for at in models for name, info in at.model_fields.items()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
