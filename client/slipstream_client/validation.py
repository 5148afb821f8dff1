"""Validation of what a program says about a task or an answer, by the sidecar's own rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

MAX_NAME = 64
"""Characters of a label, task id or session id at the sidecar."""

MAX_MSG_ID = 256
MAX_LABELS = 100


def name(field: str, value: object) -> str:
    """A task id, session id or label that can go in a header.

    Raises:
        TypeError, ValueError: it cannot; the message begins with the field.
    """
    found = text(field, value, MAX_NAME)
    if found != found.strip() or not found.isprintable():
        raise ValueError(f"{field}: expected printable text without spaces around it, found {found!r}")
    return found


def text(field: str, value: object, most: int) -> str:
    """Text of 1 to `most` characters."""
    if not isinstance(value, str):
        raise TypeError(f"{field}: expected text, found {value!r}")
    if not 1 <= len(value) <= most:
        raise ValueError(f"{field}: expected 1 to {most} characters, found {len(value)}")
    return value


def labels(values: Iterable[object]) -> tuple[str, ...]:
    """Labels, each once, in the order given."""
    found = tuple(dict.fromkeys(name("labels", value) for value in values))
    for label in found:
        if "," in label:
            raise ValueError(f"labels: a label has no commas, found {label!r}; give each label by itself")
    if len(found) > MAX_LABELS:
        raise ValueError(f"labels: expected at most {MAX_LABELS}, found {len(found)}")
    return found


def metadata(values: Mapping[str, object]) -> dict[str, Any]:
    """A copy of metadata, as JSON has it. Half a surrogate pair, which no JSON can hold, becomes a question mark.

    Raises:
        TypeError: a value is nothing that JSON knows.
        ValueError: a number is not finite.
    """
    found = {}
    for key, value in values.items():
        try:
            found[key] = json.loads(clean(json.dumps(value, ensure_ascii=False, allow_nan=False)))
        except ValueError:
            raise ValueError(f"metadata.{key}: expected finite numbers and no circles, found {value!r}") from None
        except (TypeError, RecursionError) as error:
            raise TypeError(f"metadata.{key}: expected what JSON can hold: {error}") from None
    return found


def clean(value: str) -> str:
    """Text that can be sent: people paste anything into a comment, and an agent must not fail by it."""
    return value.encode("utf-8", "replace").decode()
