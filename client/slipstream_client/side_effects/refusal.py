"""The result of a tool that was blocked or not approved, so that the model sees it and goes on."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence, Sequence
from typing import Any, Final, Literal, Union

_NO_FIT: Final = object()

_LISTS = (list, Sequence, MutableSequence, Collection, Iterable)

_TEXT_FIELDS = ("error", "message", "text", "content", "output", "result", "detail", "reason", "status")
"""Fields of result classes that may say what happened, in the order of preference."""


def blocked(tool: str) -> str:
    """Return what the model reads of a call that a replay does not carry out."""
    return f"This action was not carried out: {tool} is not permitted with these arguments here. Nothing was changed."


def refused(tool: str, reason: str) -> str:
    """Return what the model reads of a call that was not approved."""
    because = f": {reason.rstrip('.')}" if reason.strip() else ""
    return f"This action was not carried out: {tool} was not approved{because}. Nothing was changed."


def refusal(text: str, function: Callable[..., Any]) -> Any:
    """A result of a tool that says that it was not carried out, of the shape of its return annotation.

    Text where the annotation is text, missing, or nothing that the text can be put in: `{"error": text}` for a mapping,
    `[text]` for a list, False for a bool, and for a dataclass, a pydantic model or a class like AgentScope's
    `ToolResponse` an instance whose other fields have their defaults.
    """
    try:
        annotation = typing.get_type_hints(function).get("return", Any)
    except Exception:  # noqa: BLE001 - names that are imported for type checkers alone
        annotation = Any
    fitting = _fitting(annotation, text)
    return text if fitting is _NO_FIT else fitting


def _fitting(annotation: Any, text: str) -> Any:
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _fitting(typing.get_args(annotation)[0], text)
    if origin in (Union, types.UnionType):
        fits = (_fitting(each, text) for each in typing.get_args(annotation))
        return next((fit for fit in fits if fit is not _NO_FIT), _NO_FIT)
    kind = origin or annotation
    if kind is Any or kind is object or kind is str:
        return text
    if not isinstance(kind, type):
        return _NO_FIT
    if kind is bool:
        return False
    if issubclass(kind, Mapping):  # a TypedDict too
        return {"error": text}
    if kind in _LISTS:
        item = _fitting((*typing.get_args(annotation), Any)[0], text)
        return [text if item is _NO_FIT else item]
    if kind is tuple:
        return (text,)
    return _instance(kind, text)


def _instance(kind: type, text: str) -> Any:
    """An object of a class of results, made with one field that holds the text."""
    fields = _fields(kind)
    constants = {
        name: values[0]
        for name, field in fields.items()
        if typing.get_origin(field) is Literal and len(values := typing.get_args(field)) == 1
    }  # such as the `type` of MCP's TextContent
    for name in (name for name in _TEXT_FIELDS if name in fields):
        for value in (text, [{"type": "text", "text": text}]):
            if _takes(fields[name], value):
                try:
                    return kind(**{**constants, name: value})
                except Exception:  # noqa: BLE001, S112 - another field is needed, or this one is something else
                    continue
    return _NO_FIT


def _fields(kind: type) -> Mapping[str, Any]:
    """The annotations of a dataclass or of a pydantic model, by field."""
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "model_fields"):
        return {}
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - as above
        return {}


def _takes(annotation: Any, value: Any) -> bool:
    """A dataclass does not check what it is given."""
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType):
        return any(_takes(each, value) for each in typing.get_args(annotation))
    if annotation is Any:
        return True
    kind = origin or annotation
    return isinstance(kind, type) and isinstance(value, kind)
