"""Attributes of spans: flat names such as `llm.input_messages.0.message.role`, as the objects that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST_PARTS = 20
"""Parts of a name; names of the conventions have half as many."""

_MOST_DIGITS = 6
"""Digits of a place in a list."""


def nested(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as objects within objects, by the dots of their names; those of a list stand under their
    numbers, see `items`. A value beside which there are longer names is left out of it."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        *parents, last = name.split(".", _MOST_PARTS)
        node = root
        for part in parents:
            child = node.get(part)
            if not isinstance(child, dict):
                child = node[part] = {}
            node = child
        value = _nested_value(value)
        if isinstance(value, dict) and isinstance(node.get(last), dict):
            node[last] |= value
        elif not isinstance(node.get(last), dict):
            node[last] = value
    return root


def _nested_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return nested(value)
    return [_nested_value(each) for each in value] if isinstance(value, list) else value


def within(node: Any, *names: str) -> Any:
    """Return the value along these names; None where there is none."""
    for name in names:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def items(node: Any) -> list[Any]:
    """Return the elements of a list: one, or an object whose names are numbers; empty for anything else."""
    if isinstance(node, list):
        return node
    if not isinstance(node, Mapping):
        return []
    places = [name for name in node if name.isascii() and name.isdecimal() and len(name) <= _MOST_DIGITS]
    return [node[name] for name in sorted(places, key=int)]
