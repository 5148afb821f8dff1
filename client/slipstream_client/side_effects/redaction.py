"""Secrets are taken out of what is kept of a tool's result."""

from __future__ import annotations

import re
from enum import Enum
from types import FunctionType
from typing import Any

REDACTED = "[redacted]"

_SECRET = re.compile(
    r"(?:pass(?:word|wd|phrase)|secret|token|authorization|cookie|credentials?|(?:api|access|private)[_\- ]?key)\Z",
    re.IGNORECASE,
)
"""The ends of names that secrets go by: `password`, `client_secret`, `accessToken`, `X-Api-Key`."""

_AS_THEY_ARE = (str, bytes, int, float, complex, type(None), Enum, FunctionType)
"""The last two are no copies: pickle finds them by their names, and production uses them too."""


def without_secrets(value: Any) -> Any:
    """The value, changed in place where it can be, with what goes by a secret's name replaced by `[redacted]`.

    Names are the keys of dicts and the attributes of objects. Numbers stay: `max_token` is a count.
    """
    return _cleaned(value, set())


def _cleaned(value: Any, seen: set[int]) -> Any:
    if isinstance(value, _AS_THEY_ARE):
        return value
    if isinstance(value, tuple):
        items = [_cleaned(item, seen) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if id(value) in seen:
        return value
    seen.add(id(value))
    if isinstance(value, list):
        value[:] = [_cleaned(item, seen) for item in value]
        return value
    named = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if isinstance(named, dict):
        for name, item in named.items():
            is_secret = (
                isinstance(name, str) and _SECRET.search(name) and not isinstance(item, (int, float, type(None)))
            )
            named[name] = REDACTED if is_secret else _cleaned(item, seen)
    return value
