"""Recognition of chunks that differ from the one before in a piece of text alone, as most chunks of a stream do.

    {"id":"chatcmpl-1", ... "delta":{"content":"a piece"}, ... "obfuscation":"noise"}
    └───────────────── before ─────────────────┘       └────── between ──────┘     └┘ after

What is around the text is the same, so the chunk says the same but for the text. To compare these bytes takes a fifth
of the time that reading the chunk takes.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from slipstream.jsontext import from_json

TEXT_FIELDS = ("content", "refusal", "reasoning_content", "reasoning")
"""Fields of a delta whose strings are pieces of one text. Of any other field the last value counts."""

NOISE = "obfuscation"
"""A field of a chunk that has another value in each."""

_LONGEST = 4096
"""Bytes of a piece, and of what is around it: a chunk within them has few values."""

_MOST_UNUSED = 3
"""Shapes in a row that no second chunk had, after which none is looked for: the chunks of such a stream differ in
something else too."""

_STRINGS = {
    name: re.compile(rb'"%b"\s*:\s*"((?:[^"\\]|\\.)*)"' % name.encode(), re.DOTALL) for name in (*TEXT_FIELDS, NOISE)
}

_text = msgspec.json.Decoder(str).decode


class _Shape(NamedTuple):
    """The bytes around the text and, where there is some, around the noise."""

    before: bytes
    between: bytes
    after: bytes


class Repeats:
    """Gathers the texts of chunks that have the shape of the last one that was read."""

    def __init__(self) -> None:
        self._shape: _Shape | None = None
        self._used = True
        self._unused = 0
        self._pieces: list[str] = []
        self._message: dict[str, Any] = {}
        self._name = ""

    def take(self, data: bytes) -> bool:
        """Keep the text of a chunk that has this shape; returns False for any other, which must be read."""
        shape = self._shape
        if shape is None or not data.startswith(shape.before) or not data.endswith(shape.after):
            return False
        start, end = len(shape.before), len(data) - len(shape.after)
        if not start <= end <= start + _LONGEST:
            return False
        try:
            if shape.between:
                noise = data.index(shape.between, start, end)
                _text(b'"%b"' % data[noise + len(shape.between) : end])
                end = noise
            self._pieces.append(_text(b'"%b"' % data[start:end]))  # fails where the string ends before that
        except (ValueError, UnicodeError):
            return False
        return True

    def end(self) -> None:
        """Add to the message what was gathered, because another chunk comes, after which this shape may say more."""
        if self._pieces:
            self._message[self._name] += "".join(self._pieces)
            self._unused = 0
        elif self._shape is not None:
            self._unused += 1
        self._shape, self._pieces = None, []

    def learn(self, data: bytes, message: dict[str, Any], name: str) -> None:
        """Take the shape of a chunk of one choice that was read, which says nothing new but the text of this field.

        Args:
            message: that the text was added to.
        """
        if self._unused < _MOST_UNUSED and len(data) <= _LONGEST:
            self._shape = _shape_of(data, name)
            self._message, self._name = message, name


def _shape_of(data: bytes, name: str) -> _Shape | None:
    """The shape of a chunk; None where another text in that place would change another value, or none."""
    text = _STRINGS[name].search(data)
    if text is None:
        return None
    noise = _STRINGS[NOISE].search(data, text.end())
    before, between, after = data[: text.start(1)], b"", data[text.end(1) :]
    expected = from_json(data)[0]
    delta = expected["choices"][0]["delta"]
    delta[name] = "b" if delta[name] == "a" else "a"
    marked = before + delta[name].encode()
    if noise is not None:
        between, after = data[text.end(1) : noise.start(1)], data[noise.end(1) :]
        expected[NOISE] = "b" if expected.get(NOISE) == "a" else "a"
        marked += between + expected[NOISE].encode()
    try:
        found = from_json(marked + after)[0]
    except ValueError:
        return None
    return _Shape(before, between, after) if found == expected else None
