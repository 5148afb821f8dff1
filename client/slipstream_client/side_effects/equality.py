"""Equality of the arguments of two tool calls, without keeping the arguments."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from uuid import UUID

_BY_TEXT = (date, time, timedelta, Decimal, UUID, PurePath)  # a datetime is a date


class NotComparable(ValueError):
    """A value holds an object of which nobody knows when it equals another."""


def fingerprint(arguments: Mapping[str, Any]) -> str:
    """A digest that is the same for equal arguments: a secret among them is not kept.

    `5` equals `5.0`, and a tuple the list of the same items, as they do once a model has written them in JSON.

    Raises:
        NotComparable: an argument is neither plain data nor a dataclass, pydantic model or enum of it.
    """
    return sha256(_text(dict(arguments)).encode("utf-8", "surrogatepass")).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=True)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    kind = type(value).__qualname__
    if isinstance(value, Enum):  # before text and numbers, which an enum may be too
        return [kind, _plain(value.value)]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (list, tuple)):
        return ["list", *map(_plain, value)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(map(_text, value))]
    if isinstance(value, Mapping):
        return ["dict", *sorted(_text([key, item]) for key, item in value.items())]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", sha256(value).hexdigest()]
    if isinstance(value, _BY_TEXT):
        return [kind, str(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [kind, _plain({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})]
    if hasattr(type(value), "model_dump"):  # pydantic, which is not imported for this
        return [kind, _plain(value.model_dump())]
    raise NotComparable(f"a value of type {kind}")
