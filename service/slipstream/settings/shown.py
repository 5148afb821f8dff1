"""The configuration in force, key by key, without its secrets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from slipstream.config.masking import MASK, SECRET_NAME, masked
from slipstream.settings.section import Section
from slipstream.settings.sidecar import Settings
from slipstream.settings.types import database_url, shown_url

_WHOLE = ("listen", "selection")
"""Sections that are one key, as in `docs/configuration.md`: both can be written as one text."""

_DATABASES = ("sqlite", "postgresql")
"""Beginnings of database URLs, whose passwords can have signs that end those of other URLs."""

_HIDDEN = "hash"
"""Name of the field that has the hash of an API key: whoever chose a weak key need not have it guessed."""


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """One key of the configuration.

    Attributes:
        key: with its section, such as `commit.interval`.
        value: in JSON's types; durations in seconds, sizes in bytes, `***` for a secret.
        default: the same of the default.
        set: whether the file or a variable gave the key, be it with the default.
    """

    key: str
    value: Any
    default: Any
    set: bool


def shown(settings: Settings) -> list[ShownSetting]:
    """All keys, in the order of `docs/configuration.md`."""
    found: list[ShownSetting] = []
    for name in Settings.model_fields:
        section = getattr(settings, name)
        if name in _WHOLE:
            found.append(_shown(settings, name, name))
        else:
            found += [_shown(section, key, f"{name}.{key}") for key in type(section).model_fields]
    return found


def _shown(section: BaseModel, name: str, key: str) -> ShownSetting:
    default = type(section).model_fields[name].get_default(call_default_factory=True)
    return ShownSetting(key, _plain(getattr(section, name)), _plain(default), name in section.model_fields_set)


def _plain(value: Any, secret: bool = False) -> Any:
    """A value in JSON's types.

    Args:
        secret: texts in it are secrets, by the name of what it is the value of.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, BaseModel):
        return dict(_fields(value, secret))
    if isinstance(value, Mapping):
        return {str(name): _plain(each, secret or bool(SECRET_NAME.search(str(name)))) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, secret) for each in value]
    text = value.pattern if isinstance(value, re.Pattern) else str(value)
    if secret:
        return MASK
    url = database_url(text)
    return masked(shown_url(text) if url is not None and url.get_backend_name() in _DATABASES else text)


def _fields(model: BaseModel, secret: bool) -> Iterator[tuple[str, Any]]:
    """The fields of a mapping of the configuration. Of one that names a strategy, a calculator or a rule those that it
    does not give are left out: they are alternatives."""
    fields: Mapping[str, FieldInfo] = type(model).model_fields
    for name, info in fields.items():
        value = getattr(model, name)
        if value is not None or isinstance(model, Section):
            yield info.alias or name, _plain(value, secret or name == _HIDDEN)
