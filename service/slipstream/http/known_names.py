"""Kinds of header fields by their names, looked up once for each name as it is spelt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Kind = TypeVar("Kind")

_MOST = 4096
_LONGEST = 64
"""Names, and bytes of one, that are kept: agents spell a few short names over and over, and others can be of any number
and length."""


class KnownNames(dict[bytes, Kind]):
    """The kinds of header names. Lower case is made of a name only the first time that it is seen.

    Args:
        kind: returns that of a name in lower case.
    """

    def __init__(self, kind: Callable[[bytes], Kind]) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, name: bytes) -> Kind:
        kind = self._kind(name.lower())
        if len(self) < _MOST and len(name) <= _LONGEST:
            self[name] = kind
        return kind
